#include "moestro/runtime/option_words.h"

namespace moestro::runtime {

Choice dtype_choice(Dtype& dtype) {
  return choice<Dtype>(dtype, {{"f32", Dtype::f32}, {"bf16", Dtype::bf16}});
}

Choice recompute_choice(Recompute& recompute) {
  return choice<Recompute>(recompute, {{"none", Recompute::none}, {"layer", Recompute::layer}});
}

Choice lr_schedule_choice(LrSchedule& schedule) {
  return choice<LrSchedule>(schedule, {{"constant", LrSchedule::constant},
                                       {"linear", LrSchedule::linear},
                                       {"cosine", LrSchedule::cosine}});
}

Choice layout_choice(Layout& layout) {
  return choice<Layout>(
      layout, {{"colocated", Layout::colocated}, {"disaggregated", Layout::disaggregated}});
}

Choice pipeline_schedule_choice(PipelineSchedule& schedule) {
  using enum PipelineSchedule;
  return choice<PipelineSchedule>(schedule, {{"gpipe", gpipe},
                                             {"1f1b", one_f_one_b},
                                             {"interleaved", interleaved},
                                             {"interleaved-zero-bubble", interleaved_zero_bubble},
                                             {"zb-h1", zb_h1},
                                             {"zb-h2", zb_h2},
                                             {"zero-bubble-v", zero_bubble_v},
                                             {"dualpipe", dualpipe},
                                             {"dualpipe-v", dualpipe_v},
                                             {"af-pipe", af_pipe}});
}

}  // namespace moestro::runtime
