#include "moestro/kernels/internal/tiles.h"

#include <gtest/gtest.h>

#include <vector>

namespace moestro::kernels::internal {
namespace {

constexpr std::int64_t kMostRows = 5000;

std::vector<RowPiece> pieces_of(std::int64_t rows, std::int64_t tile) {
  const RowCut cut(rows, tile);
  std::vector<RowPiece> out;
  for (std::int64_t i = 0; i < cut.count(); ++i) out.push_back(cut.piece(i));
  return out;
}

struct Case {
  std::int64_t rows, tile;
};

std::vector<Case> all_cuts() {
  std::vector<Case> cuts;
  for (const std::int64_t tile : {kRowTile, kDeepRowTile}) {
    for (std::int64_t rows = 1; rows <= kMostRows; ++rows) cuts.push_back({rows, tile});
  }
  return cuts;
}

TEST(RowCut, PutsEveryRowIntoOnePiece) {
  for (const auto& [rows, tile] : all_cuts()) {
    std::int64_t next = 0;
    for (const RowPiece& piece : pieces_of(rows, tile)) {
      ASSERT_EQ(piece.begin, next) << rows;
      ASSERT_GT(piece.end, piece.begin) << rows;
      next = piece.end;
    }
    ASSERT_EQ(next, rows);
  }
}

TEST(RowCut, HasHeightsOfWholeGranulesThatDifferByOne) {
  for (const auto& [rows, tile] : all_cuts()) {
    const auto all = pieces_of(rows, tile);
    std::int64_t least = tile / 4 * 5, most = 0;
    for (const RowPiece& piece : all) {
      ASSERT_EQ(piece.height % kRowGranule, 0) << rows;
      least = std::min(least, piece.height);
      most = std::max(most, piece.height);
    }
    ASSERT_LE(most, tile / 4 * 5) << rows;
    ASSERT_LE(most - least, kRowGranule) << rows;
  }
}

TEST(RowCut, FillsUpTheLastPieceOnlyAndByLessThanAGranule) {
  for (const auto& [rows, tile] : all_cuts()) {
    const auto all = pieces_of(rows, tile);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::int64_t missing = all[i].height - (all[i].end - all[i].begin);
      ASSERT_GE(missing, 0) << rows;
      ASSERT_LT(missing, i + 1 < all.size() ? 1 : kRowGranule) << rows;
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
