#pragma once
// What is wrong with a line that is no TOML, in the words of who wrote it: the TOML parser knows
// its grammar, but not that `dtype = bf16` wants quotes.

#include <string>
#include <string_view>

namespace moestro {

struct TomlAdvice {
  std::string_view key;  // of the line; empty if it has none or is not at fault
  std::string text;      // "expected ..., got ...; ..."
};

/// What to say about a line that the TOML parser rejected with this description; `rest` is the line
/// from the error on. Cost: O(|line|).
[[nodiscard]] TomlAdvice toml_advice(std::string_view line, std::string_view rest,
                                     std::string_view description);

}  // namespace moestro
