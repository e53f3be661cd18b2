#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <dnnl.hpp>
#include <map>
#include <new>
#include <tuple>
#include <unordered_map>

#include "moestro/core/error.h"
#include "moestro/kernels/gemm.h"
#include "moestro/kernels/internal/multiply.h"
#include "moestro/kernels/internal/pack.h"
#include "moestro/kernels/internal/tiles.h"
#include "moestro/kernels/internal/views.h"
#include "moestro/kernels/parallel.h"

namespace moestro::kernels {
namespace internal {
namespace {

/// Keeps oneDNN on the calling thread: it sizes its kernels and teams by OpenMP's setting, which
/// belongs to the calling thread. Our tiles are what runs in parallel.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

/// oneDNN writes the machine code that it makes wherever its allocation led, even if to nothing.
/// So it may make some only where there is more room than that takes.
void require_room_for_code() {
  constexpr std::size_t kRoom = std::size_t{32} << 20;  // bytes; a kernel takes less than one MiB
  void* room = ::mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  ::munmap(room, kRoom);
}

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::desc describe(std::int64_t rows, std::int64_t cols, ElementType type,
                            std::int64_t stride, bool is_transposed) {
  const dnnl::memory::dims strides =
      is_transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  const auto data_type =
      type == ElementType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
  return {{rows, cols}, data_type, strides};
}

/// The layout that oneDNN likes best for a right side [k, n] under dense rows of a and c.
struct PackedLayout {
  dnnl::memory::desc description;
  bool is_panels = false;  // what pack_panels() makes
};

bool is_panels(const dnnl::memory::desc& description, std::int64_t k, std::int64_t n,
               ElementType inputs) {
  using tag = dnnl::memory::format_tag;
  const bool is_f32 = inputs == ElementType::f32;
  return description ==
         dnnl::memory::desc({k, n},
                            is_f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16,
                            is_f32 ? tag::BA16a64b : tag::BA16a64b2a);
}

PackedLayout ask_packed_layout(std::int64_t k, std::int64_t n, ElementType inputs) {
  constexpr std::int64_t kTypicalRows = 256;
  const auto a = describe(kTypicalRows, k, inputs, k, false);
  const dnnl::memory::desc b({k, n}, a.data_type(), dnnl::memory::format_tag::any);
  const auto c = describe(kTypicalRows, n, ElementType::f32, n, false);
  const auto description =
      dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), cpu_engine()).weights_desc();
  return {description, is_panels(description, k, n, inputs)};
}

/// Asked once per thread and shape.
const PackedLayout& packed_layout(std::int64_t k, std::int64_t n, ElementType inputs) {
  constexpr std::size_t kMaxLayouts = 1024;
  thread_local std::map<std::tuple<std::int64_t, std::int64_t, ElementType>, PackedLayout> cache;
  const std::tuple key{k, n, inputs};
  const auto found = cache.find(key);
  if (found != cache.end()) return found->second;
  if (cache.size() >= kMaxLayouts) cache.clear();
  return cache.emplace(key, ask_packed_layout(k, n, inputs)).first->second;
}

/// A compiled product and the memory objects it is run with.
struct Kernel {
  dnnl::matmul primitive;
  dnnl::memory a;
  dnnl::memory b;
  dnnl::memory c;
};

Kernel compile(const ProductShape& s) {
  require_room_for_code();
  const auto a = describe(s.m, s.k, s.inputs, s.a_stride, s.a_transposed);
  const auto b = s.b_packed ? packed_layout(s.k, s.n, s.inputs).description
                            : describe(s.k, s.n, s.inputs, s.b_stride, s.b_transposed);
  const auto c = describe(s.m, s.n, s.output, s.c_stride, false);
  dnnl::primitive_attr attributes;
  if (s.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes,
                                                 cpu_engine());
  return {dnnl::matmul(description), dnnl::memory(a, cpu_engine(), nullptr),
          dnnl::memory(b, cpu_engine(), nullptr), dnnl::memory(c, cpu_engine(), nullptr)};
}

struct ShapeHash {
  std::size_t operator()(const ProductShape& s) const {
    std::size_t hash = (s.a_transposed ? 1U : 0U) + (s.b_transposed ? 2U : 0U) +
                       (s.accumulate ? 4U : 0U) + (s.b_packed ? 8U : 0U) +
                       16U * static_cast<unsigned>(s.inputs) +
                       32U * static_cast<unsigned>(s.output);
    for (const std::int64_t value : {s.m, s.n, s.k, s.a_stride, s.b_stride, s.c_stride}) {
      hash = (hash ^ static_cast<std::size_t>(value)) * 0x9E3779B97F4A7C15ULL;  // golden ratio
      hash ^= hash >> 32U;
    }
    return hash;
  }
};

/// The kernel for a shape. The cache belongs to the thread: no lock, and oneDNN's scratchpad is
/// per thread too. Compiled code is tens of kilobytes a kernel, hence the bound.
Kernel& kernel_for(const ProductShape& shape) {
  constexpr std::size_t kMaxKernels = 1024;
  thread_local std::unordered_map<ProductShape, Kernel, ShapeHash> cache;
  const auto found = cache.find(shape);
  if (found != cache.end()) return found->second;
  if (cache.size() >= kMaxKernels) cache.clear();
  return cache.emplace(shape, compile(shape)).first->second;
}

dnnl::stream& thread_stream() {
  thread_local dnnl::stream stream(cpu_engine());
  return stream;
}

/// Before the calls of dnnl_sgemm for which it may make code: the first of every kind.
void require_room_for_sgemm(const ProductShape& s) {
  thread_local std::array<bool, 4> has_run{};
  bool& is_known = has_run[(s.b_transposed ? 1U : 0U) + (s.accumulate ? 2U : 0U)];
  if (!is_known) require_room_for_code();
  is_known = true;
}

/// dnnl_sgemm compiles nothing per shape and is the faster one for a transposed left side (by 10 %
/// on AVX-512); where rows must not depend on M, the left side is never transposed.
void multiply_sgemm(const ProductShape& s, const std::byte* a, const std::byte* b, std::byte* c) {
  require_room_for_sgemm(s);
  const auto status =
      dnnl_sgemm(s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', s.m, s.n, s.k, 1.0F,
                 reinterpret_cast<const float*>(a), s.a_stride, reinterpret_cast<const float*>(b),
                 s.b_stride, s.accumulate ? 1.0F : 0.0F, reinterpret_cast<float*>(c), s.c_stride);
  if (status != dnnl_success) throw dnnl::error(status, "dnnl_sgemm failed");
}

void multiply_matmul(const ProductShape& s, const std::byte* a, const std::byte* b, std::byte* c) {
  Kernel& kernel = kernel_for(s);
  kernel.a.set_data_handle(const_cast<std::byte*>(a));
  kernel.b.set_data_handle(const_cast<std::byte*>(b));
  kernel.c.set_data_handle(c);
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, kernel.a.get()},
                                       {DNNL_ARG_WEIGHTS, kernel.b.get()},
                                       {DNNL_ARG_DST, kernel.c.get()}};
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(kernel.primitive.get(), thread_stream().get(), 3, arguments),
      "could not run a matmul");
}

[[noreturn]] void rethrow(const dnnl::error& error, std::int64_t m, std::int64_t n,
                          std::int64_t k) {
  if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
  throw Error(ErrorKind::internal, "oneDNN",
              fmt::format("{} (status {}) for a product of [{}, {}] by [{}, {}]", error.message,
                          static_cast<int>(error.status), m, k, k, n));
}

template <class T>
void reorder_right(const Matrix<const T>& b, const PackedLayout& layout, std::byte* packed) {
  dnnl::memory from(describe(b.rows, b.cols, kElementType<T>, b.stride, b.is_transposed),
                    cpu_engine(), const_cast<T*>(b.data));
  dnnl::memory to(layout.description, cpu_engine(), packed);
  require_room_for_code();
  dnnl::reorder(from, to).execute(thread_stream(), from, to);
}

}  // namespace

std::size_t packed_bytes(std::int64_t k, std::int64_t n, ElementType type) {
  try {
    return packed_layout(k, n, type).description.get_size();
  } catch (const dnnl::error& error) {
    rethrow(error, 1, n, k);
  }
}

template <class T>
void pack_right(const Matrix<const T>& b, std::int64_t k, std::byte* packed) {
  const OneThread guard;
  try {
    const PackedLayout& layout = packed_layout(k, b.cols, kElementType<T>);
    if (layout.is_panels) {
      auto* panels = reinterpret_cast<T*>(packed);
      parallel_for(pieces(b.cols, kPanelColumns), 1, [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t first = begin * kPanelColumns;
        pack_panels(column_range(b, first, std::min(b.cols, end * kPanelColumns)), k,
                    panels + first * panel_rows<T>(k));
      });
    } else {
      const bool is_whole = b.rows == k && b.index == nullptr;
      reorder_right(is_whole ? b : padded(b, k, Purpose::tail_right), layout, packed);
    }
  } catch (const dnnl::error& error) {
    rethrow(error, 1, b.cols, k);
  }
}

template void pack_right(const Matrix<const float>&, std::int64_t, std::byte*);
template void pack_right(const Matrix<const bf16>&, std::int64_t, std::byte*);

void multiply(const ProductShape& shape, const std::byte* a, const std::byte* b, std::byte* c) {
  const OneThread guard;
  try {
    if (shape.inputs == ElementType::f32 && shape.a_transposed) {
      multiply_sgemm(shape, a, b, c);
    } else {
      multiply_matmul(shape, a, b, c);
    }
  } catch (const dnnl::error& error) {
    rethrow(error, shape.m, shape.n, shape.k);
  }
}

}  // namespace internal

bool has_gemm() {
  return true;
}

bool has_fast_bf16() {
  static const bool is_fast =
      dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_bf16 || has_amx_bf16();
  return is_fast;
}
bool has_amx_bf16() {
  static const bool has_amx = dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_amx;
  return has_amx;
}

const char* gemm_instruction_set() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "other";
  }
}

}  // namespace moestro::kernels
