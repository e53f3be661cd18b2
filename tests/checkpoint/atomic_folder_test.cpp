#include "moestro/checkpoint/atomic_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moestro/core/error.h"
#include "moestro/core/file.h"
#include "tests/core/temporary_folder.h"

namespace moestro::checkpoint {
namespace {

namespace fs = std::filesystem;

/// A committed checkpoint folder with one file of this text.
void put(const fs::path& path, const char* text) {
  AtomicFolder folder(path);
  write_file_atomically(folder.staging() / "config.json", text);
  folder.commit();
}

TEST(AtomicFolder, AppearsOnlyWhenCommitted) {
  const test::TemporaryFolder root;
  const fs::path path = root.path() / "deep" / "out";
  AtomicFolder folder(path);
  write_file_atomically(folder.staging() / "config.json", "new");
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(is_partial(folder.staging()));
  folder.commit();
  EXPECT_EQ(read_file(path / "config.json"), "new");
  EXPECT_FALSE(fs::exists(folder.staging()));
  EXPECT_THROW(folder.commit(), Error);
}

TEST(AtomicFolder, KeepsTheOldFolderUntilTheNewIsComplete) {
  const test::TemporaryFolder root;
  const fs::path path = root.path() / "out";
  put(path, "old");
  {
    const AtomicFolder abandoned(path);
    write_file_atomically(abandoned.staging() / "config.json", "half");
    EXPECT_EQ(read_file(path / "config.json"), "old");
  }
  EXPECT_EQ(read_file(path / "config.json"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(root.path()), {}), 1);
  put(path, "new");
  EXPECT_EQ(read_file(path / "config.json"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(root.path()), {}), 1);
}

TEST(AtomicFolder, ReplacesWhatACrashLeftBehind) {
  const test::TemporaryFolder root;
  fs::create_directories(root.path() / "out.partial");
  std::ofstream(root.path() / "out.partial" / "model.safetensors") << "half";
  put(root.path() / "out", "new");
  EXPECT_FALSE(fs::exists(root.path() / "out" / "model.safetensors"));
}

TEST(AtomicFolder, AcceptsATrailingSlash) {
  const test::TemporaryFolder root;
  put(fs::path((root.path() / "out").string() + "/"), "new");
  EXPECT_EQ(read_file(root.path() / "out" / "config.json"), "new");
  EXPECT_FALSE(fs::exists(root.path() / "out" / ".partial"));
}

TEST(AtomicFolder, NeverReplacesFilesThatNoCheckpointHas) {
  const test::TemporaryFolder root;
  const fs::path path = root.path() / "out";
  put(path, "old");
  std::ofstream(path / "thesis.tex") << "years of work";
  try {
    const AtomicFolder folder(path);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_THAT(error.what(), testing::HasSubstr("got a folder that holds thesis.tex"));
  }
  EXPECT_FALSE(remove_checkpoint(path));
  EXPECT_EQ(read_file(path / "thesis.tex"), "years of work");
  EXPECT_THROW(AtomicFolder(path / "config.json"), Error);  // a file
}

TEST(AtomicFolder, NeverTakesAFolderWithOtherFilesForWhatACrashLeft) {
  const test::TemporaryFolder root;
  fs::create_directories(root.path() / "out.partial");
  std::ofstream(root.path() / "out.partial" / "thesis.tex") << "years of work";
  EXPECT_THROW(AtomicFolder(root.path() / "out"), Error);
  EXPECT_EQ(read_file(root.path() / "out.partial" / "thesis.tex"), "years of work");
}

TEST(RemoveCheckpoint, RemovesTheFolder) {
  const test::TemporaryFolder root;
  put(root.path() / "out", "old");
  EXPECT_TRUE(remove_checkpoint(root.path() / "out"));
  EXPECT_TRUE(fs::is_empty(root.path()));
}

}  // namespace
}  // namespace moestro::checkpoint
