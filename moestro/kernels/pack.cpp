#include "moestro/kernels/internal/pack.h"

#include <algorithm>
#include <cstring>

#include "moestro/kernels/clones.h"
#include "moestro/kernels/internal/views.h"

namespace moestro::kernels::internal {
namespace {

// Everything moves as words of 32 bits: one float, or two bf16 that belong to neighbouring rows of
// a product's inner sum.
using Word = std::uint32_t;
constexpr std::int64_t kLanes = 16;
using Words [[gnu::vector_size(kLanes * sizeof(Word))]] = Word;

/// The first `count` words from `from`, then zeros.
[[gnu::always_inline]] inline void load(const void* from, std::int64_t bytes, Words& to) {
  if (bytes >= static_cast<std::int64_t>(sizeof(Words))) {
    std::memcpy(&to, from, sizeof(Words));
  } else {
    to = Words{};
    if (bytes > 0) std::memcpy(&to, from, static_cast<std::size_t>(bytes));
  }
}

/// Transposes 16 x 16 words: pairs of words, pairs of pairs, then quarters of registers change
/// places.
[[gnu::always_inline]] inline void transpose(Words (&r)[kLanes]) {
  Words t[kLanes];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9,
                                       25, 12, 28, 13, 29);
    t[2 * i + 1] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10,
                                           26, 11, 27, 14, 30, 15, 31);
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 2; ++j) {
      r[4 * i + 2 * j] = __builtin_shufflevector(t[4 * i + j], t[4 * i + j + 2], 0, 1, 16, 17, 4, 5,
                                                 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      r[4 * i + 2 * j + 1] = __builtin_shufflevector(t[4 * i + j], t[4 * i + j + 2], 2, 3, 18, 19,
                                                     6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 2; ++j) {
      const Words& a = r[8 * j + i];
      const Words& b = r[8 * j + 4 + i];
      t[8 * j + i] =
          __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
      t[8 * j + 4 + i] =
          __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = __builtin_shufflevector(t[i], t[8 + i], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25,
                                   26, 27);
    r[8 + i] = __builtin_shufflevector(t[i], t[8 + i], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23,
                                       28, 29, 30, 31);
  }
}

/// Word w of columns [0, 16) of k-major rows, `cols` of which exist: floats of row w.
[[gnu::always_inline]] inline void load_row_words(const Matrix<const float>& m, std::int64_t w,
                                                  std::int64_t col, Words& to) {
  if (w >= m.rows) {
    to = Words{};
  } else {
    load(row_of(m, w) + col, (m.cols - col) * 4, to);
  }
}

/// The same for bf16: rows 2 w and 2 w + 1, the latter in the upper halves.
[[gnu::always_inline]] inline void load_row_words(const Matrix<const bf16>& m, std::int64_t w,
                                                  std::int64_t col, Words& to) {
  using Halves [[gnu::vector_size(kLanes * sizeof(bf16))]] = std::uint16_t;
  Halves rows[2] = {};
  for (std::int64_t i = 0; i < 2; ++i) {
    if (2 * w + i >= m.rows) continue;
    const std::int64_t cols = std::min(kLanes, m.cols - col);
    const bf16* from = row_of(m, 2 * w + i) + col;
    if (cols == kLanes) {
      std::memcpy(&rows[i], from, sizeof(Halves));
    } else if (cols > 0) {
      std::memcpy(&rows[i], from, static_cast<std::size_t>(cols) * sizeof(bf16));
    }
  }
  to = __builtin_convertvector(rows[0], Words) | (__builtin_convertvector(rows[1], Words) << 16U);
}

template <class T>
inline constexpr std::int64_t kPerWord = static_cast<std::int64_t>(sizeof(Word) / sizeof(T));

/// Asks for what is read soon. Into the second-level cache: it comes from memory, and sixteen lines
/// a block, a power of two apart, would evict each other from the first.
[[gnu::always_inline]] inline void prefetch(const void* line) {
  __builtin_prefetch(line, 0, 2);
}

/// b's rows lie one after the other and are read in order: the panels are what fits into a cache.
template <class T>
[[gnu::always_inline]] inline void pack_rows(const Matrix<const T>& b, std::int64_t words,
                                             Word* out) {
  constexpr std::int64_t kRowsAhead = 16;
  for (std::int64_t w = 0; w < words; ++w) {
    Word* to = out + w * kPanelColumns;
    for (std::int64_t panel = 0; panel < b.cols; panel += kPanelColumns) {
      for (std::int64_t j = 0; j < kPanelColumns; j += kLanes) {
        Words row;
        load_row_words(b, w, panel + j, row);
        prefetch(row_of(b, std::min((w + kRowsAhead) * kPerWord<T>, b.rows - 1)) + panel + j);
        std::memcpy(to + j, &row, sizeof(row));
      }
      to += words * kPanelColumns;
    }
  }
}

/// b's columns lie one after the other, and with them the words of a column.
template <class T>
[[gnu::always_inline]] inline void pack_columns(const Matrix<const T>& b, std::int64_t words,
                                                Word* out) {
  for (std::int64_t panel = 0; panel < b.cols; panel += kPanelColumns) {
    for (std::int64_t j = 0; j < kPanelColumns; j += kLanes) {
      for (std::int64_t w = 0; w < words; w += kLanes) {
        Words block[kLanes];
        const std::int64_t row = w * kPerWord<T>;
        for (std::int64_t i = 0; i < kLanes; ++i) {
          const std::int64_t column = panel + j + i;
          const std::int64_t left = column < b.cols ? (b.rows - row) * std::int64_t{sizeof(T)} : 0;
          const T* from = left > 0 ? b.data + column * b.stride + row : nullptr;
          prefetch(left > 0 ? from + kLanes * b.stride : nullptr);
          load(from, left, block[i]);
        }
        transpose(block);
        for (std::int64_t i = 0; i < kLanes; ++i) {
          std::memcpy(out + (w + i) * kPanelColumns + j, &block[i], sizeof(Words));
        }
      }
    }
    out += words * kPanelColumns;
  }
}

template <class T>
[[gnu::always_inline]] inline void pack(const Matrix<const T>& b, std::int64_t k, T* out) {
  const std::int64_t words = panel_rows<T>(k) / kPerWord<T>;
  if (b.is_transposed) {
    pack_columns(b, words, reinterpret_cast<Word*>(out));
  } else {
    pack_rows(b, words, reinterpret_cast<Word*>(out));
  }
}

/// Walks over the lines of a matrix row by row, the order memory is fastest in.
template <class T>
struct LinesAhead {
  const Matrix<const T>& a;
  std::int64_t row, col = 0;

  [[gnu::always_inline]] void prefetch_next() {
    prefetch(row_of(a, std::min(row, a.rows - 1)) + col);
    col += static_cast<std::int64_t>(sizeof(Words) / sizeof(T));
    if (col < a.cols) return;
    col = 0;
    ++row;
  }
};

template <class T>
[[gnu::always_inline]] inline void transpose_all(const Matrix<const T>& a, std::int64_t cols,
                                                 T* out) {
  for (std::int64_t w = 0; w < cols / kPerWord<T>; w += kLanes) {
    // A row of blocks has as many lines as the next one: sixteen a block.
    LinesAhead<T> next{a, (w + kLanes) * kPerWord<T>};
    for (std::int64_t m = 0; m < a.cols; m += kLanes) {
      Words block[kLanes];
      for (std::int64_t i = 0; i < kLanes; ++i) next.prefetch_next();
      for (std::int64_t i = 0; i < kLanes; ++i) load_row_words(a, w + i, m, block[i]);
      transpose(block);
      for (std::int64_t i = 0; i < std::min(kLanes, a.cols - m); ++i) {
        std::memcpy(static_cast<void*>(out + (m + i) * cols + w * kPerWord<T>), &block[i],
                    sizeof(Words));
      }
    }
  }
}

MOESTRO_CLONES void pack_now(const Matrix<const float>& b, std::int64_t k, float* out) {
  pack(b, k, out);
}
MOESTRO_CLONES void pack_now(const Matrix<const bf16>& b, std::int64_t k, bf16* out) {
  pack(b, k, out);
}
MOESTRO_CLONES void transpose_now(const Matrix<const float>& a, std::int64_t cols, float* out) {
  transpose_all(a, cols, out);
}
MOESTRO_CLONES void transpose_now(const Matrix<const bf16>& a, std::int64_t cols, bf16* out) {
  transpose_all(a, cols, out);
}

}  // namespace

template <class T>
void pack_panels(const Matrix<const T>& b, std::int64_t k, T* out) {
  pack_now(b, k, out);
}

template <class T>
void transpose_rows(const Matrix<const T>& a, std::int64_t cols, T* out) {
  transpose_now(a, cols, out);
}

template void pack_panels(const Matrix<const float>&, std::int64_t, float*);
template void pack_panels(const Matrix<const bf16>&, std::int64_t, bf16*);
template void transpose_rows(const Matrix<const float>&, std::int64_t, float*);
template void transpose_rows(const Matrix<const bf16>&, std::int64_t, bf16*);

}  // namespace moestro::kernels::internal
