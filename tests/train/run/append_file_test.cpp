#include "train/run/append_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <iterator>

#include "lockstep/error.h"
#include "support/temporary_folder.h"

namespace lockstep::train {
namespace {

using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

class AppendedFile : public testing::Test {
 protected:
  std::string read() const {
    std::ifstream stream(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "file";
};

TEST_F(AppendedFile, GrowsBehindWhatItHad) {
  std::ofstream(path_) << "one";
  AppendFile(path_).append(" two");
  AppendFile file(path_);
  file.append(" three");
  EXPECT_EQ(read(), "one two three") << "while the file is open";
}

TEST_F(AppendedFile, IsCutToAsManyBytesAndNeverFilledUp) {
  AppendFile file(path_);
  file.append("one two");
  file.cut(3);
  EXPECT_EQ(read(), "one");
  file.cut(100);
  file.append("!");
  EXPECT_EQ(read(), "one!");
}

TEST_F(AppendedFile, HasOneWriterAtATime) {
  {
    AppendFile first(path_);
    first.append("one");
    EXPECT_THAT(
        [&] { AppendFile second(path_); },
        ThrowsMessage<Error>(HasSubstr("another run writes it at this moment; hint: name another folder")));
  }
  AppendFile(path_).append(" two");
  EXPECT_EQ(read(), "one two");
}

// A limit on the size of files stands for a disk that becomes full within a record.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = signal(SIGXFSZ, SIG_IGN);
  }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;
  ~SizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST_F(AppendedFile, IsAsItWasAfterARecordThatDidNotGoInWhole) {
  AppendFile file(path_);
  file.append("one");
  {
    const SizeLimit limit(5);
    EXPECT_THAT([&] { file.append(" two"); },
                ThrowsMessage<Error>(AllOf(StartsWith("cannot write " + path_.string()),
                                           HasSubstr("File too large"), HasSubstr("; hint: ulimit -f"))));
  }
  EXPECT_EQ(read(), "one");
  file.append(" three");
  EXPECT_EQ(read(), "one three");
}

TEST(AppendFile, SaysThatTheDiskIsFull) {
  AppendFile file("/dev/full");
  EXPECT_THAT([&] { file.append("one"); },
              ThrowsMessage<Error>("cannot write /dev/full: No space left on device; hint: its disk is full: "
                                   "make room there"));
}

TEST_F(AppendedFile, IsRefusedBehindASymbolicLink) {
  std::ofstream(folder_ / "precious") << "mine";
  for (const std::string target : {"precious", "none"}) {
    std::filesystem::create_symlink(target, path_);
    EXPECT_THAT([&] { AppendFile file(path_); },
                ThrowsMessage<Error>(HasSubstr("; hint: it is a symbolic link: remove it")));
    std::filesystem::remove(path_);
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none"));
}

TEST_F(AppendedFile, IsRefusedWhereNoneCanBe) {
  EXPECT_THAT([&] { AppendFile file(folder_.path()); }, ThrowsMessage<Error>(HasSubstr("Is a directory")));
  EXPECT_THAT([&] { AppendFile file(folder_ / "no/file"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("No such file or directory"),
                                         HasSubstr("; hint: name a folder that you may write"))));
}

}  // namespace
}  // namespace lockstep::train
