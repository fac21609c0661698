#include "launch/whole_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <future>

#include "support/child.h"
#include "support/temporary_folder.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using test::write_file;

class WholeFile : public testing::Test {
 protected:
  size_t names() const {
    const fs::directory_iterator all(folder_.path());
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }
  /// A node like /dev/null or, where that is not allowed, none.
  bool make_device(const fs::path& path) { return mknod(path.c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0; }

  test::TemporaryFolder folder_;
};

TEST_F(WholeFile, IsMadeOrReplacedWithItsModeAndNothingElseIsLeft) {
  const fs::path file = folder_ / "file";
  EXPECT_EQ(check_whole_file(file), 0);
  EXPECT_EQ(names(), 0U);
  EXPECT_EQ(write_whole_file(file, "one"), 0);
  fs::permissions(file, fs::perms(0600));
  EXPECT_EQ(write_whole_file(file, "two"), 0);
  EXPECT_EQ(read_file(file), "two");
  EXPECT_EQ(fs::status(file).permissions(), fs::perms(0600));
  EXPECT_EQ(names(), 1U);
}

TEST_F(WholeFile, IsWhatALinkLeadsTo) {
  write_file(folder_ / "target", "old");
  fs::create_symlink("target", folder_ / "one");
  fs::create_symlink("one", folder_ / "two");
  fs::create_symlink("new", folder_ / "dangling");
  fs::create_symlink("loop", folder_ / "loop");
  EXPECT_EQ(write_whole_file(folder_ / "two", "text"), 0);
  EXPECT_EQ(write_whole_file(folder_ / "dangling", "text"), 0);
  EXPECT_EQ(read_file(folder_ / "target"), "text");
  EXPECT_EQ(read_file(folder_ / "new"), "text");
  EXPECT_EQ(write_whole_file(folder_ / "loop", "text"), ELOOP);
  for (const char* link : {"one", "two", "dangling", "loop"})
    EXPECT_TRUE(fs::is_symlink(folder_ / link)) << link;
}

TEST_F(WholeFile, IsWrittenIntoADeviceOrPipe) {
  const fs::path pipe = folder_ / "pipe", device = folder_ / "device";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  auto reader = std::async(std::launch::async, [&] { return read_file(pipe); });
  EXPECT_EQ(check_whole_file(pipe), 0);
  EXPECT_EQ(write_whole_file(pipe, "text"), 0);
  EXPECT_EQ(reader.get(), "text");
  EXPECT_TRUE(fs::is_fifo(pipe));
  if (make_device(device)) {
    fs::create_symlink("device", folder_ / "link");
    for (const char* name : {"device", "link"}) EXPECT_EQ(write_whole_file(folder_ / name, "text"), 0);
    EXPECT_TRUE(fs::is_character_file(device));
    EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  }
}

TEST_F(WholeFile, IsRefusedWhereItCannotBe) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(write_whole_file(pipe, "nobody reads"), ENXIO);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(write_whole_file(folder_.path(), "text"), EISDIR);
  EXPECT_EQ(check_whole_file(folder_.path()), EISDIR);
  EXPECT_EQ(write_whole_file(folder_ / "none/file", "text"), ENOENT);
  EXPECT_EQ(check_whole_file(folder_ / "none/file"), ENOENT);
  EXPECT_EQ(write_whole_file("/dev/full", "text"), ENOSPC);
}

}  // namespace
}  // namespace lockstep::launch
