// Builds without oneDNN: everything links, products throw.
#include "moestro/core/error.h"
#include "moestro/kernels/gemm.h"
#include "moestro/kernels/internal/multiply.h"

namespace moestro::kernels {

void internal::multiply(const ProductShape& /*shape*/, const std::byte* /*a*/,
                        const std::byte* /*b*/, std::byte* /*c*/) {
  throw input_error("gemm",
                    "expected a build with oneDNN, got one without; configure with "
                    "-DMOESTRO_WITH_ONEDNN=ON (Debian package libdnnl-dev)");
}

bool has_gemm() {
  return false;
}
bool has_fast_bf16() {
  return false;
}
const char* gemm_instruction_set() {
  return "none";
}

}  // namespace moestro::kernels
