#include "moestro/runtime/model_loading.h"

#include <span>
#include <string>
#include <utility>

#include "moestro/checkpoint/hf_folder.h"
#include "moestro/checkpoint/training_state.h"
#include "moestro/checkpoint/verify_report.h"
#include "moestro/core/error.h"
#include "moestro/core/error_context.h"
#include "moestro/core/log.h"
#include "moestro/core/text.h"
#include "moestro/core/units.h"
#include "moestro/layers/weights.h"
#include "moestro/model/ledger.h"
#include "moestro/runtime/memory.h"

namespace moestro::runtime {
namespace {

/// A model whose static memory alone exceeds the machine would be killed without a word.
void check_memory(const model::HfConfig& source) {
  constexpr double kBytesPerParameter = 16.0;  // f32 weight, gradient and two AdamW moments
  const model::Ledger ledger = model::make_ledger(source.model, 1, {.with_mtp = false});
  const Bytes needed(kBytesPerParameter * static_cast<double>(ledger.params.total));
  if (const std::string problem = why_too_much(needed); !problem.empty()) {
    throw infeasible_error(
        source.source,
        "expected a model that fits, got {} parameters whose weights, gradients and optimizer "
        "state take {}; choose a smaller model or a larger machine",
        with_thousands(ledger.params.total), problem);
  }
}

/// The model with weights of zero. What a larger machine would not mend is refused first. `where`
/// names what asked for the model.
LoadedModel allocate(model::HfConfig source, const std::string& where, const ModelCheck& check) {
  in_context(where, [&] { layers::require_trainable(source.model); });
  if (check) check(source.model);
  in_context(where, [&] { check_memory(source); });
  if (source.model.mtp.layers > 0) {
    log_warning("{}: the model's {} multi-token prediction layer(s) are left out of training",
                source.source, source.model.mtp.layers);
  }
  LoadedModel loaded;
  loaded.decoder = make_decoder(source.model);
  loaded.source = std::move(source);
  return loaded;
}

void require_plain_weights(const std::filesystem::path& folder, const model::HfConfig& source) {
  if (source.quantization.empty()) return;
  checkpoint::require_plain_weights(checkpoint::HfFolder(folder),
                                    source.source + " quantization_config", source.quantization);
}

void warn_of_unused_weights(const std::filesystem::path& folder, const model::HfConfig& source) {
  const auto unused = checkpoint::unexpected_tensors(checkpoint::HfFolder(folder), source.model);
  if (unused.empty()) return;
  log_warning("{}: {} tensors are no part of the model that {} describes, and are left out: {}{}",
              folder.string(), unused.size(), source.source, printable(unused.front()),
              unused.size() > 1 ? ", ..." : "");
}

LoadedModel load_folder(const std::filesystem::path& folder, const std::string& where,
                        const ModelCheck& check) {
  model::HfConfig source = in_context(where, [&] { return model::read_hf_config(folder); });
  LoadedModel loaded = allocate(std::move(source), where, check);
  in_context(where, [&] {
    require_plain_weights(folder, loaded.source);
    load_weights(folder, loaded.decoder);
    warn_of_unused_weights(folder, loaded.source);
  });
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
  return load_folder(folder, "", {});
}

LoadedModel load_model(const RunConfig& config, const ModelCheck& check) {
  const ModelSection& section = config.model;
  if (!section.load.empty()) {
    const std::string where = config.where("model.load");
    return load_folder(
        in_context(where, [&] { return checkpoint::resolve_checkpoint(section.load); }), where,
        check);
  }
  const std::string where = config.where("model.config");
  model::HfConfig source =
      in_context(where, [&] { return model::resolve_model(section.config, {}, where); });
  LoadedModel loaded = allocate(std::move(source), where, check);
  layers::initialise(loaded.decoder.config, static_cast<std::uint64_t>(section.init_seed),
                     loaded.decoder.weights);
  return loaded;
}

}  // namespace moestro::runtime
