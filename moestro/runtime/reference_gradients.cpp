#include "moestro/runtime/reference_gradients.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "moestro/core/error.h"

namespace moestro::runtime {
namespace {

using checkpoint::SafetensorsFile;

/// Where a gradient begins in a stored tensor.
struct Place {
  std::string name;
  std::int64_t first = 0;
};

std::optional<Place> locate(const model::ModelConfig& config, const model::TensorSpec& spec,
                            const SafetensorsFile& expected) {
  if (expected.has("grad." + spec.name)) return Place{"grad." + spec.name, 0};
  for (const auto& location : model::alternative_locations(config, spec)) {
    if (expected.has("grad." + location.name)) {
      return Place{"grad." + location.name, location.first_element};
    }
  }
  return std::nullopt;
}

/// The tensors that hold the gradient together.
std::vector<model::TensorSpec> stored_pieces(const model::ModelConfig& config,
                                             const model::TensorSpec& spec,
                                             const SafetensorsFile& expected) {
  if (locate(config, spec, expected)) return {spec};
  std::vector<model::TensorSpec> pieces = model::expert_pieces(config, spec);
  const bool has_any = std::any_of(pieces.begin(), pieces.end(), [&](const auto& piece) {
    return locate(config, piece, expected).has_value();
  });
  return has_any ? pieces : std::vector{spec};
}

}  // namespace

std::vector<float> read_reference_gradient(const model::ModelConfig& config,
                                           const model::TensorSpec& spec,
                                           const SafetensorsFile& expected,
                                           std::set<std::string>& used) {
  std::vector<float> values(static_cast<std::size_t>(spec.elements()));
  std::span<float> rest(values);
  for (const model::TensorSpec& piece : stored_pieces(config, spec, expected)) {
    const auto place = locate(config, piece, expected);
    if (!place) {
      throw input_error(expected.path().string(), "expected a tensor grad.{}, got none; add it",
                        piece.name);
    }
    if (expected.info(place->name).elements() < place->first + piece.elements()) {
      throw input_error(expected.path().string() + " " + place->name,
                        "expected at least {} elements, got shape {}",
                        place->first + piece.elements(),
                        checkpoint::shape_text(expected.info(place->name).shape));
    }
    const auto elements = static_cast<std::size_t>(piece.elements());
    expected.read_floats(place->name, rest.first(elements), place->first);
    rest = rest.subspan(elements);
    used.insert(place->name);
  }
  return values;
}

}  // namespace moestro::runtime
