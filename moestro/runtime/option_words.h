#pragma once
// The words users write for the enumerations of run_config.h, for every reader of options.

#include "moestro/core/fields.h"
#include "moestro/runtime/run_config.h"

namespace moestro::runtime {

/// "f32" or "bf16".
[[nodiscard]] Choice dtype_choice(Dtype& dtype);
/// "none" or "layer".
[[nodiscard]] Choice recompute_choice(Recompute& recompute);
/// "constant", "linear" or "cosine".
[[nodiscard]] Choice lr_schedule_choice(LrSchedule& schedule);
/// "colocated" or "disaggregated".
[[nodiscard]] Choice layout_choice(Layout& layout);
/// "gpipe", "1f1b", ...: the kinds of pipeline schedules.
[[nodiscard]] Choice pipeline_schedule_choice(PipelineSchedule& schedule);

}  // namespace moestro::runtime
