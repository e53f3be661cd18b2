#pragma once
// One reading function per architecture family: the keys of its config.json, the defaults of keys
// that published files leave out, and the rules that no key spells out. All take the object that
// holds the text model (the root, or text_config), and throw Error(input).

#include "moestro/model/internal/config_object.h"
#include "moestro/model/model_config.h"

namespace moestro::model::internal {

[[nodiscard]] ModelConfig read_deepseek_v1(const ConfigObject& config);
[[nodiscard]] ModelConfig read_deepseek_v2(const ConfigObject& config);
[[nodiscard]] ModelConfig read_deepseek_v3(const ConfigObject& config);  // R1 and Kimi-K2 too
[[nodiscard]] ModelConfig read_glm4_moe(const ConfigObject& config);
[[nodiscard]] ModelConfig read_qwen3_moe(const ConfigObject& config);
[[nodiscard]] ModelConfig read_qwen3_next(const ConfigObject& config);
[[nodiscard]] ModelConfig read_qwen3_5_moe(const ConfigObject& config);
[[nodiscard]] ModelConfig read_nemotron_h(const ConfigObject& config);
[[nodiscard]] ModelConfig read_gpt_oss(const ConfigObject& config);
[[nodiscard]] ModelConfig read_llama4(const ConfigObject& config);
[[nodiscard]] ModelConfig read_mixtral(const ConfigObject& config);
[[nodiscard]] ModelConfig read_olmoe(const ConfigObject& config);
[[nodiscard]] ModelConfig read_granitemoe(const ConfigObject& config);
[[nodiscard]] ModelConfig read_phimoe(const ConfigObject& config);

/// What the values of single keys cannot show: divisibility, top_k against experts, sizes whose
/// parameters or tensors could not be counted. Errors: input.
void check_model(const ConfigObject& config, const ModelConfig& model);

}  // namespace moestro::model::internal
