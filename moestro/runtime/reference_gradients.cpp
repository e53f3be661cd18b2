#include "moestro/runtime/reference_gradients.h"

#include <cstdint>
#include <span>

#include "moestro/checkpoint/hf_folder.h"
#include "moestro/core/error.h"

namespace moestro::runtime {

std::vector<float> read_reference_gradient(const model::ModelConfig& config,
                                           const model::TensorSpec& spec,
                                           const checkpoint::SafetensorsFile& expected,
                                           std::set<std::string>& used) {
  const auto has = [&](const std::string& name) { return expected.has("grad." + name); };
  std::vector<float> values(static_cast<std::size_t>(spec.elements()));
  std::span<float> rest(values);
  for (const model::TensorSpec& piece : checkpoint::stored_pieces(config, spec, has)) {
    const auto place = checkpoint::locate(config, piece, has);
    if (!place) {
      throw input_error(expected.path().string(), "expected a tensor grad.{}, got none; add it",
                        piece.name);
    }
    const std::string name = "grad." + place->name;
    const std::int64_t end = place->first_element + piece.elements();
    if (expected.info(name).elements() < end) {
      throw input_error(expected.path().string() + " " + name,
                        "expected at least {} elements, got shape {}", end,
                        checkpoint::shape_text(expected.info(name).shape));
    }
    const auto elements = static_cast<std::size_t>(piece.elements());
    expected.read_floats(name, rest.first(elements), place->first_element);
    rest = rest.subspan(elements);
    used.insert(name);
  }
  return values;
}

}  // namespace moestro::runtime
