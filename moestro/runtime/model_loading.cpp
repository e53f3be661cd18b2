#include "moestro/runtime/model_loading.h"

#include <span>
#include <utility>

#include "moestro/checkpoint/hf_folder.h"
#include "moestro/core/log.h"
#include "moestro/layers/weights.h"

namespace moestro::runtime {
namespace {

LoadedModel from_config(model::HfConfig source) {
  if (source.model.mtp.layers > 0) {
    log_warning("{}: the model's {} multi-token prediction layer(s) are left out of training",
                source.source, source.model.mtp.layers);
  }
  LoadedModel loaded;
  loaded.decoder = make_decoder(source.model);
  loaded.source = std::move(source);
  return loaded;
}

}  // namespace

void load_weights(const std::filesystem::path& folder, Decoder& decoder) {
  const checkpoint::HfFolder files(folder);
  for (const layers::Binding& binding : layers::bindings(decoder.config, decoder.weights)) {
    const auto size = static_cast<std::size_t>(binding.spec.elements());
    files.read(decoder.config, binding.spec, std::span<float>(binding.value(), size));
  }
  for (layers::Parameter* parameter : layers::parameters(decoder.weights)) {
    layers::refresh_compute(*parameter);
  }
}

LoadedModel load_model(const std::filesystem::path& folder) {
  LoadedModel loaded = from_config(model::read_hf_config(folder));
  load_weights(folder, loaded.decoder);
  return loaded;
}

LoadedModel load_model(const ModelSection& section) {
  if (!section.load.empty()) return load_model(std::filesystem::path(section.load));
  LoadedModel loaded = from_config(model::resolve_model(section.config));
  layers::initialise(loaded.decoder.config, static_cast<std::uint64_t>(section.init_seed),
                     loaded.decoder.weights);
  return loaded;
}

}  // namespace moestro::runtime
