#include "moestro/model/model_config.h"

namespace moestro::model {

const char* to_string(Family family) {
  switch (family) {
    case Family::deepseek_v1:
      return "deepseek_v1";
    case Family::deepseek_v2:
      return "deepseek_v2";
    case Family::deepseek_v3:
      return "deepseek_v3";
    case Family::qwen3_moe:
      return "qwen3_moe";
    case Family::qwen3_next:
      return "qwen3_next";
    case Family::qwen3_5_moe:
      return "qwen3_5_moe";
    case Family::nemotron_h:
      return "nemotron_h";
    case Family::gpt_oss:
      return "gpt_oss";
    case Family::mixtral:
      return "mixtral";
    case Family::llama4:
      return "llama4";
    case Family::olmoe:
      return "olmoe";
    case Family::granitemoe:
      return "granitemoe";
    case Family::phimoe:
      return "phimoe";
    case Family::glm4_moe:
      return "glm4_moe";
  }
  return "?";
}

const char* to_string(MixerKind kind) {
  switch (kind) {
    case MixerKind::none:
      return "none";
    case MixerKind::attention:
      return "attention";
    case MixerKind::mla:
      return "mla";
    case MixerKind::mamba2:
      return "mamba2";
    case MixerKind::gated_delta_net:
      return "gated_delta_net";
  }
  return "?";
}

const char* to_string(FfnKind kind) {
  switch (kind) {
    case FfnKind::none:
      return "none";
    case FfnKind::dense:
      return "dense";
    case FfnKind::moe:
      return "moe";
  }
  return "?";
}

}  // namespace moestro::model
