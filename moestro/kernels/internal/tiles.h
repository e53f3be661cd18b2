#pragma once
// How results are cut into tiles. Tiles keep one thread's operands in its second-level cache
// (1-2 MiB) and make enough pieces for every thread. They are part of the result's bits: no thread
// count may change them.

#include <algorithm>
#include <cstdint>

namespace moestro::kernels::internal {

inline constexpr std::int64_t kRowTile = 256;
inline constexpr std::int64_t kDeepRowTile = 64;  // where few rows meet a deep right side
inline constexpr std::int64_t kRowGranule = 16;   // rows of an AMX tile
inline constexpr std::int64_t kF32RowGranule =
    8;                                            // fewer rows for nothing, more kernels to compile
inline constexpr std::int64_t kWidestRow = 1024;  // results up to this wide are not cut
inline constexpr std::int64_t kColumnTile = 512;

[[nodiscard]] constexpr std::int64_t pieces(std::int64_t size, std::int64_t piece) {
  return (size + piece - 1) / piece;
}

/// Columns of a tile of a result of `cols` columns.
[[nodiscard]] constexpr std::int64_t column_tile(std::int64_t cols) {
  return cols <= kWidestRow ? cols : kColumnTile;
}

/// Rows [begin, end) of a result. Kernels are compiled for `height` rows, whole granules; only the
/// last piece has fewer, by less than a granule.
struct RowPiece {
  std::int64_t begin, end, height;
};

/// Shares rows out over pieces of about `tile` rows, at most a quarter more. Heights differ by one
/// granule at most. Every row is in one piece.
class RowCut {
 public:
  explicit constexpr RowCut(std::int64_t rows, std::int64_t tile = kRowTile,
                            std::int64_t granule = kRowGranule)
      : rows_(rows),
        granule_(granule),
        granules_(pieces(rows, granule)),
        count_(std::max(pieces(rows, tile / 4 * 5), (rows + tile / 2 - 1) / tile)) {}

  [[nodiscard]] constexpr std::int64_t count() const { return count_; }
  [[nodiscard]] constexpr RowPiece piece(std::int64_t i) const {
    const std::int64_t begin = begin_of(i), end = begin_of(i + 1);
    return {begin, std::min(rows_, end), end - begin};
  }

 private:
  [[nodiscard]] constexpr std::int64_t begin_of(std::int64_t i) const {
    return i * granules_ / count_ * granule_;
  }

  std::int64_t rows_, granule_, granules_, count_;
};

}  // namespace moestro::kernels::internal
