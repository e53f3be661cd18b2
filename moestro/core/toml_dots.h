#pragma once
// Guards the TOML parser: every dot of a key nests a table in a table, and tables are destroyed
// recursively, so that a file of nothing but dots would overflow the stack.

#include <cstddef>
#include <string_view>

namespace moestro {

/// Dots outside strings and comments: those of keys and of numbers. Exact up to the first syntax
/// error. Cost: O(|toml|).
[[nodiscard]] std::size_t dots_outside_quotes(std::string_view toml);

}  // namespace moestro
