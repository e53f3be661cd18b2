#include "moestro/core/fields.h"
#include "moestro/runtime/option_words.h"
#include "moestro/runtime/verify.h"

namespace moestro::runtime {

VerifyOptions read_verify_options(const std::vector<std::string>& overrides) {
  VerifyOptions options;
  std::int64_t threads = 0;
  const Fields fields = {
      {"train",
       "How the reference model is run.",
       {{"dtype", dtype_choice(options.dtype), "arithmetic"},
        {"recompute", recompute_choice(options.recompute), "activation recomputation"},
        {"threads", &threads, "CPU threads; 0: all cores", between(0, 1024)},
        // For tests of what pipeline schedules do; no help page names it.
        {"defer_weight_gradients", &options.defer_weight_gradients,
         "compute weight gradients apart from input gradients"}}}};
  Origins origins;
  for (const std::string& text : overrides) apply_override(text, fields, origins);
  options.threads = static_cast<int>(threads);
  return options;
}

}  // namespace moestro::runtime
