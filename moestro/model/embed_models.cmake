# cmake -DFOLDER=examples/models -DOUTPUT=built_in_models.cpp -P embed_models.cmake
#
# Writes a C++ source that holds every .json of FOLDER as a string literal.
file(GLOB files ${FOLDER}/*.json)
list(SORT files)
set(entries "")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WLE)
  file(READ ${file} text)
  string(APPEND entries "    {\"${name}\", R\"moestro_json(${text})moestro_json\"},\n")
endforeach()
file(WRITE ${OUTPUT}.new "// Generated from examples/models by embed_models.cmake.
#include <array>

#include \"moestro/model/internal/built_in_models.h\"

namespace moestro::model::internal {
namespace {
constexpr auto kModels = std::to_array<BuiltInModel>({
${entries}});
}  // namespace

std::span<const BuiltInModel> built_in_model_files() { return kModels; }

}  // namespace moestro::model::internal
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
file(REMOVE ${OUTPUT}.new)
