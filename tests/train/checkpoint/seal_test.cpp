#include "train/checkpoint/seal.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>

#include "lockstep/error.h"
#include "support/child.h"
#include "support/temporary_folder.h"
#include "train/checkpoint/samples.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Seal, HasTheHashOfXxHash) {
  const test::TemporaryFolder folder;
  // As XXH3_64bits() of xxHash 0.8.1 gives for the whole text.
  EXPECT_EQ(write_sealed(folder.path(), "empty", {}), (Seal{"empty", 0, 0x2d06800538d394c2}));
  EXPECT_EQ(write_sealed(folder.path(), "abc", {bytes_of("abc")}), (Seal{"abc", 3, 0x78af5f94892f3950}));
}

TEST(WriteSealed, WritesAllPiecesInOrder) {
  const test::TemporaryFolder folder;
  const auto large = test::random_bytes((5 << 20) + 17, 1);
  std::string expected;
  Pieces pieces;
  const auto add = [&](std::span<const std::byte> piece) {
    pieces.push_back(piece);
    expected.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  };
  // More pieces than one call takes, empty ones, ones larger than a block.
  for (size_t i = 0; i < 2000; ++i) add(std::span(large).subspan(i, i % 7));
  add(large);
  add({});
  add(std::span(large).first(3 << 20));
  const Seal seal = write_sealed(folder.path(), "file", pieces);
  EXPECT_EQ(test::read_file(folder / "file"), expected);
  EXPECT_EQ(seal, seal_of(folder / "file"));
  EXPECT_EQ(seal.bytes, expected.size());
}

TEST(SealOf, TellsEveryFlippedByte) {
  const test::TemporaryFolder folder;
  const std::string text = "The quick brown fox jumps over the lazy dog.";
  const Seal seal = write_sealed(folder.path(), "file", {bytes_of(text)});
  for (size_t at = 0; at < text.size(); ++at) {
    std::string altered = text;
    altered[at] ^= 1;
    test::write_file(folder / "file", altered);
    EXPECT_NE(seal_of(folder / "file"), seal) << at;
  }
}

TEST(WriteSealed, LeavesAFileThatIsThereAlone) {
  const test::TemporaryFolder folder;
  write_sealed(folder.path(), "file", {bytes_of("first")});
  EXPECT_THAT([&] { write_sealed(folder.path(), "file", {bytes_of("second")}); },
              ThrowsMessage<Error>(AllOf(HasSubstr((folder / "file").string()), HasSubstr("File exists"))));
  EXPECT_EQ(test::read_file(folder / "file"), "first");
}

TEST(WriteSealed, RefusesNamesThatLeadOutOfTheFolder) {
  const test::TemporaryFolder folder;
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../x"), std::string("/x"),
        std::string("a/b"), std::string(".hidden"), std::string("a b"), std::string("a\n"),
        std::string("a\0b", 3), std::string("ü"), std::string(201, 'a')}) {
    EXPECT_THROW(write_sealed(folder.path(), name, {}), UsageError) << name;
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_TRUE(is_file_name("model-00001-of-00002.safetensors"));
}

TEST(WriteSealed, NamesTheFileThatCannotBeMade) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "plain", "");
  // Root may write everywhere, but not below a file.
  EXPECT_THAT([&] { write_sealed(folder / "plain", "x", {}); },
              ThrowsMessage<Error>("cannot make " + (folder / "plain").string() + "/x: Not a directory"));
  EXPECT_THAT([&] { write_sealed(folder / "none", "x", {}); },
              ThrowsMessage<Error>(HasSubstr("No such file or directory")));
}

TEST(WriteSealed, LeavesNoFileThatItCouldNotWriteWhole) {
  const test::TemporaryFolder folder;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {.rlim_cur = 10, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  std::string told;
  try {
    write_sealed(folder.path(), "file", {bytes_of("more than "), bytes_of("ten bytes")});
  } catch (const Error& error) {
    told = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(told, "cannot write " + (folder / "file").string() + ": File too large");
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(SealOf, NamesTheFileThatCannotBeRead) {
  const test::TemporaryFolder folder;
  EXPECT_THAT([&] { seal_of(folder / "none"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("cannot open"), HasSubstr("none: No such file"))));
  EXPECT_THAT([&] { seal_of(folder.path()); }, ThrowsMessage<Error>(HasSubstr("is not a regular file")));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT([&] { seal_of(folder / "pipe"); }, ThrowsMessage<Error>(HasSubstr("is not a regular file")));
}

}  // namespace
}  // namespace lockstep::train
