#pragma once
// What is wrong with a line that is no TOML, in the words of who wrote it: the TOML parser knows
// its grammar, but not that `dtype = bf16` wants quotes.

#include <string>
#include <string_view>

namespace moestro {

/// The key of a line `key = value`, or empty.
[[nodiscard]] std::string_view key_of_line(std::string_view line);

/// "expected ..., got ...; ..." for a line the TOML parser rejected with this description. Cost:
/// O(|line|).
[[nodiscard]] std::string toml_advice(std::string_view line, std::string_view description);

}  // namespace moestro
