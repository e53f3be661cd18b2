#pragma once
// A tiny run for tests: a text, a model that learns it in seconds, and the run that trains it.

#include <fstream>
#include <string>

#include "moestro/runtime/run_config.h"
#include "moestro/runtime/trainer.h"
#include "tests/core/temporary_folder.h"

namespace moestro::runtime {

/// Writes config.json and text.txt into the folder and returns a run of 6 steps on them.
inline RunConfig tiny_run(const std::filesystem::path& folder) {
  std::ofstream(folder / "config.json") << R"({"model_type": "qwen3_moe", "vocab_size": 256,
    "hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": [], "attention_bias": false,
    "rms_norm_eps": 1e-6, "norm_topk_prob": true, "decoder_sparse_step": 1,
    "rope_theta": 10000.0, "hidden_act": "silu", "max_position_embeddings": 64,
    "tie_word_embeddings": false, "use_sliding_window": false,
    "initializer_range": 0.02})";
  std::ofstream text(folder / "text.txt");
  for (int i = 0; i < 200; ++i) text << "the quick brown fox " << i % 7 << " jumps over the dog\n";
  text.close();
  RunConfig config;
  config.model.config = (folder / "config.json").string();
  config.data.text = {(folder / "text.txt").string()};
  config.data.seq_len = 19;
  config.train.steps = 6;
  config.train.global_batch = 8;
  config.train.micro_batch = 4;
  config.train.threads = 2;
  config.optimizer.lr = 1e-2;
  config.balance.aux_loss = 0.01;
  return config;
}

struct Losses {
  std::vector<float> steps;
  TrainResult result;
};

inline Losses train_and_collect(const RunConfig& config) {
  Losses losses;
  TrainHooks hooks;
  hooks.on_step = [&](const StepReport& step) { losses.steps.push_back(step.loss); };
  losses.result = train(config, hooks);
  return losses;
}

}  // namespace moestro::runtime
