#include "moestro/checkpoint/usable_numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "moestro/checkpoint/safetensors_writer.h"
#include "moestro/core/error.h"
#include "tests/core/temporary_folder.h"

namespace moestro::checkpoint {
namespace {

TEST(UsableNumbers, AllThatIsFiniteIs) {
  const std::vector<float> values = {0.0F, -0.0F, kLowest, std::numeric_limits<float>::max(),
                                     std::numeric_limits<float>::denorm_min()};
  EXPECT_EQ(find_unusable(values).count, 0);
  EXPECT_EQ(find_unusable({}).count, 0);
}

TEST(UsableNumbers, OthersAreCountedAndTheFirstIsNamed) {
  const std::vector<float> values = {1.0F, -INFINITY, NAN, -2.0F, INFINITY};
  EXPECT_EQ(to_text(find_unusable(values)), "3, the first, -inf, at index 1");
  EXPECT_EQ(find_unusable(values, 0.0F).count, 4);
  EXPECT_EQ(to_text(find_unusable(std::vector<float>{-NAN})), "1, the first, nan, at index 0");
}

TEST(UsableNumbers, AStoredTensorIsReadToItsEnd) {
  const test::TemporaryFolder folder;
  constexpr std::int64_t kSize = 3 * (1 << 16) + 5;
  std::vector<float> values(kSize, 1.0F);
  values[(1 << 16) + 7] = NAN;
  values[kSize - 1] = -INFINITY;
  SafetensorsWriter writer(folder.path() / "x.safetensors", {{"w", Dtype::f32, {kSize}}});
  writer.write_floats("w", values);
  writer.finish();
  const SafetensorsFile file(folder.path() / "x.safetensors");
  EXPECT_EQ(to_text(find_unusable(file, "w")), "2, the first, nan, at index 65543");
}

TEST(UsableNumbers, AnErrorNamesTheTensorAndWhatToDo) {
  try {
    require_usable(find_unusable(std::vector<float>{-1.0F}, 0.0F), 0.0F, "o.safetensors", "w",
                   "take another");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_STREQ(error.what(),
                 "[o.safetensors tensor \"w\"] expected finite numbers >= 0, got others (1, the "
                 "first, -1, at index 0); take another");
  }
}

}  // namespace
}  // namespace moestro::checkpoint
