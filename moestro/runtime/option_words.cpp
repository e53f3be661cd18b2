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

}  // namespace moestro::runtime
