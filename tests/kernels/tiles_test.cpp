#include "moestro/kernels/internal/tiles.h"

#include <gtest/gtest.h>

#include <vector>

namespace moestro::kernels::internal {
namespace {

constexpr std::int64_t kMostRows = 5000;

struct Case {
  std::int64_t rows, tile, granule;
};

std::vector<RowPiece> pieces_of(const Case& c) {
  const RowCut cut(c.rows, c.tile, c.granule);
  std::vector<RowPiece> out;
  for (std::int64_t i = 0; i < cut.count(); ++i) out.push_back(cut.piece(i));
  return out;
}

std::vector<Case> all_cuts() {
  std::vector<Case> cuts;
  for (const std::int64_t tile : {kRowTile, kDeepRowTile}) {
    for (const std::int64_t granule : {kRowGranule, kF32RowGranule}) {
      for (std::int64_t rows = 1; rows <= kMostRows; ++rows) cuts.push_back({rows, tile, granule});
    }
  }
  return cuts;
}

TEST(RowCut, PutsEveryRowIntoOnePiece) {
  for (const Case& c : all_cuts()) {
    std::int64_t next = 0;
    for (const RowPiece& piece : pieces_of(c)) {
      ASSERT_EQ(piece.begin, next) << c.rows;
      ASSERT_GT(piece.end, piece.begin) << c.rows;
      next = piece.end;
    }
    ASSERT_EQ(next, c.rows);
  }
}

TEST(RowCut, HasHeightsOfWholeGranulesThatDifferByOne) {
  for (const Case& c : all_cuts()) {
    std::int64_t least = c.tile / 4 * 5, most = 0;
    for (const RowPiece& piece : pieces_of(c)) {
      ASSERT_EQ(piece.height % c.granule, 0) << c.rows;
      least = std::min(least, piece.height);
      most = std::max(most, piece.height);
    }
    ASSERT_LE(most, c.tile / 4 * 5) << c.rows;
    ASSERT_LE(most - least, c.granule) << c.rows;
  }
}

TEST(RowCut, FillsUpTheLastPieceOnlyAndByLessThanAGranule) {
  for (const Case& c : all_cuts()) {
    const auto all = pieces_of(c);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::int64_t missing = all[i].height - (all[i].end - all[i].begin);
      ASSERT_GE(missing, 0) << c.rows;
      ASSERT_LT(missing, i + 1 < all.size() ? 1 : c.granule) << c.rows;
    }
  }
}

TEST(RowCut, GivesThreadsPiecesOfAboutOneTile) {
  EXPECT_EQ(RowCut(320).count(), 1);
  EXPECT_EQ(RowCut(321).count(), 2);
  EXPECT_EQ(RowCut(640).count(), 2);
  EXPECT_EQ(RowCut(900).count(), 4);
  EXPECT_EQ(RowCut(4097).count(), 16);
  EXPECT_EQ(RowCut(256, kDeepRowTile).count(), 4);
  for (std::int64_t tiles = 1; tiles <= 20; ++tiles) {
    const RowCut cut(tiles * kRowTile);
    ASSERT_EQ(cut.count(), tiles);
    for (std::int64_t i = 0; i < tiles; ++i) ASSERT_EQ(cut.piece(i).height, kRowTile);
  }
}

}  // namespace
}  // namespace moestro::kernels::internal
