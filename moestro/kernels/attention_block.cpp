#include "moestro/kernels/internal/attention_block.h"

#include "moestro/core/error.h"

namespace moestro::kernels::internal {
namespace {

// Measured at head_dim 64: stacks of 256 rows amortise packing keys and values; more queries per
// block would compute more invisible scores beside the diagonal; scores (f32), probabilities and
// operands of a block fit half a second-level cache of 1 MiB.
constexpr std::int64_t kStackedRows = 256;
constexpr std::int64_t kMostQueries = 128;
constexpr std::int64_t kLeastQueries = 16;
constexpr std::int64_t kMostScores = std::int64_t{1} << 16;
constexpr std::int64_t kMostKeys = 512;
constexpr std::int64_t kLeastKeys = 64;

}  // namespace

BlockSizes block_sizes(const AttentionShape& shape) {
  BlockSizes sizes;
  sizes.group = shape.heads / shape.kv_heads;
  sizes.queries = std::clamp(kStackedRows / sizes.group, kLeastQueries, kMostQueries);
  sizes.keys = std::clamp(kMostScores / sizes.rows(), kLeastKeys, kMostKeys);
  return sizes;
}

void check_attention(const AttentionShape& s) {
  MOESTRO_CHECK(s.batch >= 0 && s.seq >= 0 && s.head_dim > 0 && s.heads > 0 && s.kv_heads > 0 &&
                    s.heads % s.kv_heads == 0 && s.window >= 0,
                "attention: batch {}, seq {}, {} heads, {} kv heads, head_dim {}, window {}",
                s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, s.window);
}

}  // namespace moestro::kernels::internal
