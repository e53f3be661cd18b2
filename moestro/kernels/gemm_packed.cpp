// Products that copy their right side into the kernels' own layout first and multiply many rows by
// it: linear maps (gemm_rows) and weight gradients.

#include <algorithm>
#include <type_traits>

#include "moestro/kernels/gemm.h"
#include "moestro/kernels/internal/multiply.h"
#include "moestro/kernels/internal/pack.h"
#include "moestro/kernels/internal/tiles.h"
#include "moestro/kernels/internal/views.h"
#include "moestro/kernels/parallel.h"

namespace moestro::kernels {
namespace {

using namespace internal;  // NOLINT(google-build-using-namespace): the views are this file's words

// Inner sums are cut in fixed places, so that bits depend on shapes alone; how rows and columns are
// shared out changes no sum.
constexpr std::int64_t kDepthTile =
    1024;  // longer sums lose digits, longer rows fall out of the cache

/// How a sum over tokens is cut: in parts of about `tile` tokens, at most a quarter more, in whole
/// granules, a transposed block each (32 tokens are an AMX tile of bf16, too).
struct TokenCut {
  std::int64_t tile, granule;
};
template <class T>
constexpr TokenCut kTokenCut = {512, 16};
template <>
constexpr TokenCut kTokenCut<bf16> = {1024, 32};

// Bounds of the work memory.
constexpr std::int64_t kPackedBytes = std::int64_t{8} << 20;
constexpr std::int64_t kTokensAtOnce = 8192;  // one tile of them: 16 MiB in f32
constexpr std::int64_t kSumRows = 2048;       // kWidestRow f32 sums each: 8 MiB

// f32 results of bf16 products from this size on are made in work memory and written past the
// caches: fetching their old contents cost up to half of the product's time.
constexpr std::int64_t kLargeResult = std::int64_t{1} << 18;  // elements: 1 MiB

/// Whether this CPU multiplies T in f32.
template <class T>
bool is_widened() {
  return std::is_same_v<T, bf16> && !has_fast_bf16();
}

template <class T>
std::size_t bytes_of_packed(std::int64_t rows, std::int64_t cols) {
  return packed_bytes(rows, cols, is_widened<T>() ? ElementType::f32 : kElementType<T>);
}

template <class T>
void pack(const Matrix<const T>& b, std::int64_t k, std::byte* to) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (is_widened<T>()) {
      pack_right(widened(b, Purpose::gemm_right), k, to);
      return;
    }
  }
  pack_right(b, k, to);
}

/// c (+)= a b of a packed b. a and c are dense.
template <class AB, class C>
void multiply_native(const Matrix<const AB>& a, const std::byte* b, const Matrix<C>& c,
                     bool accumulate) {
  const ProductShape shape{.m = a.rows,
                           .n = c.cols,
                           .k = a.cols,
                           .a_stride = a.cols,
                           .c_stride = c.cols,
                           .b_packed = true,
                           .accumulate = accumulate,
                           .inputs = kElementType<AB>,
                           .output = kElementType<C>};
  multiply(shape, reinterpret_cast<const std::byte*>(a.data), b,
           reinterpret_cast<std::byte*>(c.data));
}

template <class AB, class C>
void multiply_packed(const Matrix<const AB>& a, const std::byte* b, const Matrix<C>& c,
                     bool accumulate) {
  if constexpr (std::is_same_v<AB, bf16>) {
    if (is_widened<AB>()) {
      multiply_widened(a, c, accumulate, [b](const auto& wide, const auto& out, bool adds) {
        multiply_native(wide, b, out, adds);
      });
      return;
    }
  }
  multiply_native(a, b, c, accumulate);
}

/// How a right side is cut: tiles of `width` columns, each in parts of `depth` rows, and how many
/// columns and rows, whole tiles and parts, are packed at once.
struct Cut {
  std::int64_t width, depth;
  std::int64_t columns_at_once, depth_at_once;
};

/// How many parts of this size work memory is meant to hold.
template <class T>
std::int64_t parts_at_once(std::int64_t depth, std::int64_t width) {
  return std::max<std::int64_t>(
      1, kPackedBytes / static_cast<std::int64_t>(bytes_of_packed<T>(depth, width)));
}

/// Tiles of all `rows` of b, one at least.
template <class T>
Cut cut_of_whole_tiles(std::int64_t rows, std::int64_t width, std::int64_t depth) {
  depth = std::min(rows, depth);
  const std::int64_t tiles = parts_at_once<T>(depth, width) / pieces(rows, depth);
  return {width, depth, std::max<std::int64_t>(1, tiles) * width, rows};
}

/// Whether work memory is meant to hold all parts of a tile.
template <class T>
bool fits(std::int64_t rows, std::int64_t width) {
  const std::int64_t depth = std::min(rows, kDepthTile);
  return pieces(rows, depth) <= parts_at_once<T>(depth, width);
}

/// The same where a tile fits; else some parts of every tile, of as many tiles as give every thread
/// a piece of the result.
template <class T>
Cut cut_of_parts(std::int64_t rows, std::int64_t cols, std::int64_t row_pieces) {
  const std::int64_t width = column_tile(cols), depth = std::min(rows, kDepthTile);
  if (fits<T>(rows, width)) return cut_of_whole_tiles<T>(rows, width, kDepthTile);
  const std::int64_t at_once = parts_at_once<T>(depth, width);
  const std::int64_t tiles =
      std::min({at_once, pieces(cols, width), pieces(num_threads(), row_pieces)});
  return {width, depth, tiles * width, at_once / tiles * depth};
}

/// All of b, filled up with zero rows, tile by tile, in work memory of the calling thread.
template <class T>
class PackedTiles {
 public:
  PackedTiles(const Matrix<const T>& b, std::int64_t rows, const Cut& cut)
      : rows_(rows), cols_(b.cols), width_(cut.width), depth_(std::min(rows, cut.depth)) {
    part_bytes_ = bytes_of_packed<T>(depth_, std::min(cols_, width_));
    data_ = scratch_bytes(Purpose::packed_right,
                          part_bytes_ * static_cast<std::size_t>(tiles() * parts()));
    for (std::int64_t tile = 0; tile < tiles(); ++tile) {
      const auto columns = column_range(b, begin_of(tile), begin_of(tile) + width_of(tile));
      for (std::int64_t part = 0; part < parts(); ++part) {
        const std::int64_t begin = part * depth_, end = end_of_part(part);
        pack(row_range(columns, begin, std::min(b.rows, end)), end - begin, at(tile, part));
      }
    }
  }
  [[nodiscard]] std::int64_t tiles() const { return pieces(cols_, width_); }
  [[nodiscard]] std::int64_t parts() const { return pieces(rows_, depth_); }
  [[nodiscard]] std::int64_t depth() const { return rows_; }
  /// Columns of b that a tile holds: the first, and how many.
  [[nodiscard]] std::int64_t begin_of(std::int64_t tile) const { return tile * width_; }
  [[nodiscard]] std::int64_t width_of(std::int64_t tile) const {
    return std::min(cols_ - begin_of(tile), width_);
  }

  /// c (+)= a b for the columns of a tile, the parts added in order; part_of(begin, end) are dense
  /// columns [begin, end) of a. c is dense.
  template <class PartOf, class C>
  void multiply(std::int64_t tile, const PartOf& part_of, const Matrix<C>& c,
                bool accumulate) const {
    for (std::int64_t part = 0; part < parts(); ++part) {
      const Matrix<const T> left = part_of(part * depth_, end_of_part(part));
      multiply_packed(left, at(tile, part), c, accumulate || part > 0);
    }
  }

 private:
  [[nodiscard]] std::int64_t end_of_part(std::int64_t part) const {
    return std::min(rows_, (part + 1) * depth_);
  }
  [[nodiscard]] std::byte* at(std::int64_t tile, std::int64_t part) const {
    return data_ + part_bytes_ * static_cast<std::size_t>(tile * parts() + part);
  }

  std::int64_t rows_, cols_, width_, depth_;
  std::size_t part_bytes_;
  std::byte* data_;
};

/// Packs b, filled up with zeros to `depth` rows, as much at a time as `cut` says, and calls
/// body(packed, tile, column, row, piece) for every tile of the result, in parallel, for one group
/// of b's rows after the other; `column` is the tile's first, `row` the first of b's that is
/// packed. Neighbours in order share their tile, so that a thread finds it in its cache.
template <class T, class Body>
void for_tiles(const Matrix<const T>& b, std::int64_t depth, const Cut& cut, const RowCut& rows,
               const Body& body) {
  for (std::int64_t column = 0; column < b.cols; column += cut.columns_at_once) {
    const auto columns = column_range(b, column, std::min(b.cols, column + cut.columns_at_once));
    for (std::int64_t row = 0; row < depth; row += cut.depth_at_once) {
      const std::int64_t end = std::min(depth, row + cut.depth_at_once);
      const PackedTiles<T> right(row_range(columns, row, std::min(b.rows, end)), end - row, cut);
      parallel_for(rows.count() * right.tiles(), 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
          const std::int64_t tile = i / rows.count();
          body(right, tile, column + right.begin_of(tile), row, rows.piece(i % rows.count()));
        }
      });
    }
  }
}

/// One tile of c; a is filled up with zero rows to as many. Where the kernels cannot write c in
/// place it goes by way of work memory, which also spares strides of a power of two, whose lines
/// evict each other. The order of the sum is the same either way: c, then part after part.
template <class AB, class C>
void multiply_tile(const Matrix<const AB>& a, const PackedTiles<AB>& b, std::int64_t tile,
                   const Matrix<C>& c, bool accumulate, bool streams) {
  constexpr bool is_f32 = std::is_same_v<C, float>;
  const auto part_of = [&](std::int64_t begin, std::int64_t end) {
    const auto part = column_range(a, begin, end);
    return is_dense(part) && a.rows == c.rows ? part
                                              : padded(part, c.rows, Purpose::gemm_dense_left);
  };
  if (is_dense(c) && !streams && (is_f32 || b.parts() == 1)) {
    b.multiply(tile, part_of, c, accumulate);
  } else if (!is_f32 && b.parts() == 1) {
    const auto out = work_matrix<C>(c.rows, c.cols, Purpose::gemm_sum);
    b.multiply(tile, part_of, out, false);
    copy_rows(as_const(out), c);
  } else {
    const auto sum = work_matrix<float>(c.rows, c.cols, Purpose::gemm_sum);
    if constexpr (is_f32) {
      if (accumulate) copy_rows(as_const(c), sum);
    }
    b.multiply(tile, part_of, sum, accumulate);
    if constexpr (is_f32) {
      if (streams) {
        stream_rows(sum, c);
        return;
      }
    }
    copy_rows(as_const(sum), c);
  }
}

/// A piece of fewer rows than its height is made in work memory with all of them: no kernel is
/// compiled for their number, and their bits are those of a full piece. The rows that are not
/// wanted are those before the piece, so that a need not be copied, or zeros where it is the first.
template <class AB, class C>
void multiply_piece(const Matrix<const AB>& a, const PackedTiles<AB>& b, std::int64_t tile,
                    const Matrix<C>& c, const RowPiece& piece, bool accumulate, bool streams) {
  const auto [begin, end, height] = piece;
  const auto rows = row_range(c, begin, end);
  if (rows.rows == height) {
    multiply_tile(row_range(a, begin, end), b, tile, rows, accumulate, streams);
    return;
  }
  const std::int64_t first = std::max<std::int64_t>(0, end - height);
  const auto out = work_matrix<C>(height, c.cols, Purpose::tail_out);
  const auto out_rows = row_range(out, begin - first, end - first);
  if (accumulate) {
    zero(out);
    copy_rows(as_const(rows), out_rows);
  }
  multiply_tile(row_range(a, first, end), b, tile, out, accumulate, false);
  copy_rows(as_const(out_rows), rows);
}

/// `tokens` filled up to whole granules.
template <class T>
std::int64_t whole_tokens(std::int64_t tokens) {
  return pieces(tokens, kTokenCut<T>.granule) * kTokenCut<T>.granule;
}

/// Tokens of a part of the sum: a few beyond a tile are no part of their own, which would read and
/// write the whole result for little.
template <class T>
std::int64_t token_depth(std::int64_t tokens) {
  return whole_tokens<T>(pieces(tokens, RowCut(tokens, kTokenCut<T>.tile).count()));
}

/// c (+)= a^T times one tile of b, by way of work memory: gradients are not read before the
/// optimizer comes, so that new ones are streamed.
template <class AB>
void multiply_transposed(const Matrix<const AB>& a, const PackedTiles<AB>& b, std::int64_t tile,
                         const Matrix<float>& c, bool accumulate) {
  const auto part_of = [&](std::int64_t begin, std::int64_t end) {
    const auto part = work_matrix<AB>(c.rows, end - begin, Purpose::tail_left);
    transpose_rows(row_range(a, begin, std::min(a.rows, end)), end - begin, part.data);
    return as_const(part);
  };
  const auto sum = work_matrix<float>(c.rows, c.cols, Purpose::gemm_sum);
  b.multiply(tile, part_of, sum, false);
  accumulate ? add_rows(sum, c) : stream_rows(sum, c);
}

/// c (+)= a^T b for at most kTokensAtOnce tokens. Kernels are compiled per length of the sum, so
/// that a last tile of tokens that is no whole number of granules is filled up with zeros, which
/// add nothing.
template <class AB>
void add_tokens(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<float>& c,
                bool accumulate) {
  const std::int64_t whole = whole_tokens<AB>(b.rows);
  const Cut cut =
      cut_of_whole_tiles<AB>(whole, std::min(c.cols, kColumnTile), token_depth<AB>(whole));
  for_tiles(b, whole, cut, RowCut(c.rows),
            [&](const PackedTiles<AB>& right, std::int64_t tile, std::int64_t column,
                std::int64_t /*token*/, const RowPiece& piece) {
              const auto rows = row_range(c, piece.begin, piece.end);
              multiply_transposed(column_range(a, piece.begin, piece.end), right, tile,
                                  column_range(rows, column, column + right.width_of(tile)),
                                  accumulate);
            });
}

/// How the rows of a result are shared out. A deep right side is read from memory by every piece
/// however large, so that few rows may as well make a piece for every thread.
template <class T>
RowCut row_cut(std::int64_t rows, bool is_deep) {
  constexpr std::int64_t kFewRows = 512;
  return RowCut(rows, is_deep && rows <= kFewRows ? kDeepRowTile : kRowTile,
                std::is_same_v<T, bf16> ? kRowGranule : kF32RowGranule);
}

/// c (+)= a b, b packed as `cut` says. Only f32 results can wait for a second group of parts.
template <class AB, class C>
void multiply_groups(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<C>& c,
                     const Cut& cut, bool accumulate, bool streams) {
  for_tiles(b, b.rows, cut, row_cut<AB>(c.rows, cut.depth_at_once < b.rows),
            [&](const PackedTiles<AB>& right, std::int64_t tile, std::int64_t column,
                std::int64_t row, const RowPiece& piece) {
              multiply_piece(column_range(a, row, row + right.depth()), right, tile,
                             column_range(c, column, column + right.width_of(tile)), piece,
                             accumulate || row > 0, streams);
            });
}

/// c = a b of bf16, b packed in groups of parts: block by block of c, whose sums are in f32.
template <class AB>
void multiply_deep(const Matrix<const AB>& a, const Matrix<const AB>& b, const Matrix<bf16>& c,
                   const Cut& cut) {
  const std::int64_t share = pieces(c.rows, pieces(c.rows, kSumRows));
  const std::int64_t height = std::min(c.rows, pieces(share, kRowTile) * kRowTile);
  const std::int64_t tiles = std::max<std::int64_t>(1, kSumRows * kWidestRow / height / cut.width);
  const std::int64_t width = std::min(c.cols, tiles * cut.width);
  for (std::int64_t r0 = 0; r0 < c.rows; r0 += height) {
    const std::int64_t r1 = std::min(c.rows, r0 + height);
    for (std::int64_t c0 = 0; c0 < c.cols; c0 += width) {
      const std::int64_t c1 = std::min(c.cols, c0 + width);
      const auto sum = work_matrix<float>(r1 - r0, c1 - c0, Purpose::deep_sum);
      multiply_groups(row_range(a, r0, r1), column_range(b, c0, c1), sum, cut, false, false);
      const auto out = column_range(row_range(c, r0, r1), c0, c1);
      parallel_for(r1 - r0, kRowGranule, [&](std::int64_t begin, std::int64_t end) {
        copy_rows(as_const(row_range(sum, begin, end)), row_range(out, begin, end));
      });
    }
  }
}

}  // namespace

template <class AB, class C>
void gemm_rows(Matrix<const AB> a, Matrix<const AB> b, Matrix<C> c, bool accumulate) {
  check_shapes(a, b, c, accumulate);
  MOESTRO_CHECK(!a.is_transposed, "gemm_rows: a must not be transposed");
  if (is_done_without_product(a.cols, c, accumulate)) return;
  const bool is_deep = !fits<AB>(b.rows, column_tile(c.cols));
  const Cut cut = cut_of_parts<AB>(b.rows, c.cols, row_cut<AB>(c.rows, is_deep).count());
  if constexpr (!std::is_same_v<C, float>) {
    if (is_deep) {
      multiply_deep(a, b, c, cut);
      return;
    }
  }
  const bool streams = std::is_same_v<AB, bf16> && std::is_same_v<C, float> && !accumulate &&
                       !is_deep && c.rows * c.cols >= kLargeResult;
  multiply_groups(a, b, c, cut, accumulate, streams);
}

template <class AB>
void gemm_weight_gradient(Matrix<const AB> a, Matrix<const AB> b, Matrix<float> c,
                          bool accumulate) {
  check_shapes(transposed(a), b, c, accumulate, true);
  MOESTRO_CHECK(!a.is_transposed && !b.is_transposed,
                "gemm_weight_gradient: a and b must hold one token per row");
  if (is_done_without_product(a.rows, c, accumulate)) return;
  for (std::int64_t t = 0; t < a.rows; t += kTokensAtOnce) {
    const std::int64_t end = std::min(a.rows, t + kTokensAtOnce);
    add_tokens(row_range(a, t, end), row_range(b, t, end), c, accumulate || t > 0);
  }
}

template void gemm_rows(Matrix<const float>, Matrix<const float>, Matrix<float>, bool);
template void gemm_rows(Matrix<const bf16>, Matrix<const bf16>, Matrix<float>, bool);
template void gemm_rows(Matrix<const bf16>, Matrix<const bf16>, Matrix<bf16>, bool);
template void gemm_weight_gradient(Matrix<const float>, Matrix<const float>, Matrix<float>, bool);
template void gemm_weight_gradient(Matrix<const bf16>, Matrix<const bf16>, Matrix<float>, bool);

}  // namespace moestro::kernels
