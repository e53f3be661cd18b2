// Training and verification for builds without torch: the same functions, which say what is
// missing.

#include "moestro/core/error.h"
#include "moestro/runtime/trainer.h"
#include "moestro/runtime/verify.h"

namespace moestro::runtime {
namespace {

[[noreturn]] void refuse(const char* verb) {
  throw input_error(verb,
                    "expected a build with training, got one configured with "
                    "-DMOESTRO_WITH_TORCH=OFF; configure with -DMOESTRO_WITH_TORCH=ON, or run "
                    "./moestro.sh build");
}

}  // namespace

bool is_available() {
  return false;
}

TrainResult train(const RunConfig& /*config*/, const TrainHooks& /*hooks*/) {
  refuse("train");
}

VerifyResult verify_against(const std::filesystem::path& /*folder*/,
                            const VerifyOptions& /*options*/) {
  refuse("verify --against");
}

}  // namespace moestro::runtime
