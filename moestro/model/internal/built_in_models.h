#pragma once
// The files of examples/models, compiled into the program: built-in names work from everywhere.

#include <span>
#include <string_view>

namespace moestro::model::internal {

struct BuiltInModel {
  std::string_view name;  // file name without .json
  std::string_view json;
};

/// Sorted by name. Defined in a file that the build generates (embed_models.cmake).
[[nodiscard]] std::span<const BuiltInModel> built_in_model_files();

}  // namespace moestro::model::internal
