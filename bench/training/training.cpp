// Times full training steps (forward, backward, clipping, AdamW) on a fixed batch and prints one
// JSON object: losses (to be compared with a peer's), seconds and the GEMM peak of every step, and
// memory.
//
//   bench_training FOLDER --threads 1 --dtype f32 --steps 6 [--recompute]
//
// FOLDER holds config.json, model.safetensors and batch.safetensors (tokens int64 [sequences,
// length + 1]); run.py makes it.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "moestro/checkpoint/safetensors.h"
#include "moestro/core/error.h"
#include "moestro/core/json.h"
#include "moestro/kernels/gemm.h"
#include "moestro/kernels/gemm_peak.h"
#include "moestro/layers/caching_allocator.h"
#include "moestro/model/ledger.h"
#include "moestro/runtime/compute.h"
#include "moestro/runtime/model_loading.h"
#include "moestro/runtime/train_step.h"

namespace {

namespace checkpoint = moestro::checkpoint;
namespace data = moestro::data;
namespace kernels = moestro::kernels;
namespace layers = moestro::layers;
namespace model = moestro::model;
namespace runtime = moestro::runtime;
using moestro::Json;
using moestro::Seconds;

struct Arguments {
  std::string folder;
  std::string dtype = "f32";
  int threads = 1;
  int steps = 6;
  std::int64_t micro_batch = 0;  // 0: the whole batch at once
  bool recompute = false;
};

double status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0.0;
    if (word == key && status >> kib) return kib * 1024.0;
  }
  return 0.0;
}

/// Makes VmHWM start again from the present memory.
void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

data::Batch read_batch(const std::string& folder) {
  const checkpoint::SafetensorsFile file(folder + "/batch.safetensors");
  const auto& shape = file.info("tokens").shape;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(shape.at(0) * shape.at(1)));
  file.read_integers("tokens", tokens);
  data::Batch batch{.sequences = shape[0], .seq_len = shape[1] - 1, .inputs = {}, .labels = {}};
  for (std::int64_t s = 0; s < shape[0]; ++s) {
    const auto begin = tokens.begin() + s * shape[1];
    batch.inputs.insert(batch.inputs.end(), begin, begin + batch.seq_len);
    batch.labels.insert(batch.labels.end(), begin + 1, begin + shape[1]);
  }
  return batch;
}

runtime::OptimizerSection optimizer_section() {
  runtime::OptimizerSection section;
  section.lr = 1e-3;
  section.betas = {0.9, 0.95};
  section.schedule = runtime::LrSchedule::constant;
  return section;
}

Json run(const Arguments& arguments) {
  const auto dtype = arguments.dtype == "bf16" ? runtime::Dtype::bf16 : runtime::Dtype::f32;
  const runtime::Compute compute = runtime::set_up_compute(dtype, arguments.threads);
  const data::Batch batch = read_batch(arguments.folder);
  const double baseline = status_bytes("VmRSS:");
  runtime::LoadedModel loaded = runtime::load_model(std::filesystem::path(arguments.folder));
  runtime::Decoder& decoder = loaded.decoder;
  runtime::prepare_for_training(decoder, compute.dtype);
  runtime::Optimizer optimizer = runtime::make_optimizer(optimizer_section(), arguments.steps,
                                                         layers::parameters(decoder.weights));
  double static_bytes = 0.0;
  for (const layers::Parameter* p : optimizer.parameters) {
    const auto n = static_cast<double>(p->value.numel());
    static_bytes += n * (compute.dtype == at::kFloat ? 16.0 : 18.0);
  }
  const std::int64_t micro_batch =
      arguments.micro_batch > 0 ? arguments.micro_batch : batch.sequences;
  const runtime::StepPlan plan{
      .seq_len = batch.seq_len,
      .micro_batch = micro_batch,
      .shards = 1,
      .dtype = compute.dtype,
      .recompute = arguments.recompute ? runtime::Recompute::layer : runtime::Recompute::none,
      .balance = {}};
  std::vector<double> losses, seconds, gemm;
  double peak = 0.0;
  for (int step = 1; step <= arguments.steps; ++step) {
    reset_peak();
    const auto start = std::chrono::steady_clock::now();
    losses.push_back(runtime::train_step(decoder, optimizer, plan, batch, step).loss);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    peak = std::max(peak, status_bytes("VmHWM:"));
    // Right after every step, since the speed of shared machines drifts within seconds.
    gemm.push_back(kernels::measure_gemm_peak(compute.dtype == at::kFloat ? kernels::GemmType::f32
                                                                          : kernels::GemmType::bf16,
                                              compute.threads, Seconds{0.3})
                       .rate.value());
  }
  const model::Ledger ledger =
      model::make_ledger(decoder.config, batch.seq_len, {.with_mtp = false});
  return {{"program", "moestro"},
          {"dtype", compute.dtype_name},
          {"threads", compute.threads},
          {"instruction_set", kernels::gemm_instruction_set()},
          {"tokens", batch.sequences * batch.seq_len},
          {"losses", losses},
          {"step_seconds", seconds},
          {"flops_per_token", ledger.flops.value()},
          {"gemm_peak_flops_per_second", gemm},
          {"static_bytes", static_bytes},
          {"peak_above_static_bytes", peak - baseline - static_bytes},
          {"allocator_peak_bytes", layers::allocator_use().peak_used.value()}};
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Times training steps on a fixed batch.");
  app.add_option("FOLDER", arguments.folder)->required();
  app.add_option("--dtype", arguments.dtype)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--threads", arguments.threads);
  app.add_option("--steps", arguments.steps);
  app.add_option("--micro-batch", arguments.micro_batch);
  app.add_flag("--recompute", arguments.recompute);
  CLI11_PARSE(app, argc, argv);
  try {
    std::puts(run(arguments).dump().c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
