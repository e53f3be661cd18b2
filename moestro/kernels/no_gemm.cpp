// Builds without oneDNN: everything links, products throw.
#include "moestro/core/error.h"
#include "moestro/kernels/gemm.h"
#include "moestro/kernels/internal/multiply.h"

namespace moestro::kernels {
namespace internal {
namespace {

[[noreturn]] void refuse() {
  throw input_error("gemm",
                    "expected a build with oneDNN, got one without; configure with "
                    "-DMOESTRO_WITH_ONEDNN=ON (Debian package libdnnl-dev)");
}

}  // namespace

void multiply(const ProductShape& /*shape*/, const std::byte* /*a*/, const std::byte* /*b*/,
              std::byte* /*c*/) {
  refuse();
}
std::size_t packed_bytes(std::int64_t /*k*/, std::int64_t /*n*/, ElementType /*type*/) {
  refuse();
}
template <class T>
void pack_right(const Matrix<const T>& /*b*/, std::int64_t /*k*/, std::byte* /*packed*/) {
  refuse();
}
template void pack_right(const Matrix<const float>&, std::int64_t, std::byte*);
template void pack_right(const Matrix<const bf16>&, std::int64_t, std::byte*);

}  // namespace internal

bool has_gemm() {
  return false;
}
bool has_fast_bf16() {
  return false;
}
bool has_amx_bf16() {
  return false;
}
const char* gemm_instruction_set() {
  return "none";
}

}  // namespace moestro::kernels
