#include "train/data/text_corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <optional>

#include "lockstep/error.h"
#include "support/temporary_folder.h"
#include "train/data/utf8.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ReadText, GivesAFileAsItStands) {
  const TemporaryFolder folder;
  const std::string text("caf\xc3\xa9\r\n\0 end", 12);
  test::write_file(folder / "a.txt", text);
  EXPECT_EQ(read_text(folder / "a.txt"), text);
}

TEST(ReadText, JoinsTheFilesOfAFolderInOrderOfTheirPaths) {
  const TemporaryFolder folder;
  test::write_file(folder / "b.txt", "second\n");
  test::write_file(folder / "a.txt", "first");
  test::write_file(folder / "c/x", "third");
  test::write_file(folder / "c/w/z", "before third");
  EXPECT_EQ(read_text(folder.path()), "first\nsecond\n\nbefore third\nthird");
}

TEST(ReadText, LeavesHiddenFilesAndFoldersOut) {
  const TemporaryFolder folder;
  test::write_file(folder / "a", "text");
  test::write_file(folder / ".hidden", "\xff");
  test::write_file(folder / ".git/b", "\xff");
  EXPECT_EQ(read_text(folder.path()), "text");
}

TEST(ReadText, ReadsAHiddenFolderThatIsNamed) {
  const TemporaryFolder folder;
  test::write_file(folder / ".data/a", "text");
  EXPECT_EQ(read_text(folder / ".data"), "text");
}

TEST(ReadText, RefusesAFileThatIsNotThere) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { read_text(folder / "none.txt"); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr((folder / "none.txt").string()), HasSubstr("there is no such file"))));
}

TEST(ReadText, RefusesAFolderWithoutFiles) {
  const TemporaryFolder folder;
  test::write_file(folder / ".hidden", "text");
  EXPECT_THAT([&] { read_text(folder.path()); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr(folder.path().string()), HasSubstr("no file"))));
}

TEST(ReadText, RefusesAnEmptyFile) {
  const TemporaryFolder folder;
  test::write_file(folder / "a", "text");
  test::write_file(folder / "b", "");
  EXPECT_THAT([&] { read_text(folder.path()); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr((folder / "b").string()), HasSubstr("is empty"))));
}

TEST(ReadText, RefusesWhatIsNoRegularFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT([&] { read_text(folder / "pipe"); },
              ThrowsMessage<UsageError>(HasSubstr("is no regular file")));
}

TEST(ReadText, RefusesAFileLongerThanItReads) {
  const TemporaryFolder folder;
  test::write_file(folder / "big", "a");
  fs::resize_file(folder / "big", kMaxCorpusBytes + 1);
  EXPECT_THAT([&] { read_text(folder / "big"); },
              ThrowsMessage<UsageError>(HasSubstr("has 1073741825 bytes; hint: at most 1073741824")));
}

TEST(ReadText, RefusesBytesThatAreNotUtf8ByPlaceAndValue) {
  const TemporaryFolder folder;
  test::write_file(folder / "latin1", "caf\xe9 au lait");
  EXPECT_THAT(
      [&] { read_text(folder / "latin1"); },
      ThrowsMessage<UsageError>(AllOf(HasSubstr((folder / "latin1").string()), HasSubstr("byte 3 is 0xe9"))));
}

TEST(ReadText, ShowsNoControlCharacterOfAFilesName) {
  const TemporaryFolder folder;
  test::write_file(folder / "a\x1b[2J", "");
  EXPECT_THAT([&] { read_text(folder.path()); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("a\\x1b[2J"), testing::Not(HasSubstr("\x1b")))));
}

struct Utf8Case {
  std::string text;
  std::optional<size_t> invalid;
};

TEST(Utf8, IsWhatRfc3629Says) {
  const Utf8Case cases[] = {
      {"", {}},
      {std::string("\0\x7f", 2), {}},
      {"\xc2\x80\xdf\xbf", {}},
      {"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf", {}},
      {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", {}},
      {"a\x80", 1},             // a continuation without a beginning
      {"a\xc3", 1},             // cut short
      {"ab\xe2\x82", 2},        //
      {"\xf0\x9f\x98", 0},      //
      {"\xc3(", 0},             // no continuation
      {"\xe2\x82(", 0},         //
      {"\xc0\x80", 0},          // overlong
      {"\xc1\xbf", 0},          //
      {"\xe0\x9f\xbf", 0},      //
      {"\xf0\x8f\xbf\xbf", 0},  //
      {"\xed\xa0\x80", 0},      // surrogates
      {"\xed\xbf\xbf", 0},      //
      {"\xf4\x90\x80\x80", 0},  // above U+10FFFF
      {"\xf7\xbf\xbf\xbf", 0},  //
      {"\xf8\x88\x80\x80\x80", 0},
      {"ok\xff", 2},
      {"ok\xfe", 2},
  };
  for (const auto& [text, invalid] : cases) {
    EXPECT_EQ(first_invalid_byte(text), invalid) << testing::PrintToString(text);
  }
}

TEST(Utf8, DoesNotReadBeyondTheText) {
  const std::string_view text = "ab\xc3\xa9";
  EXPECT_EQ(first_invalid_byte(text), std::nullopt);
  EXPECT_EQ(first_invalid_byte(text.substr(0, 3)), 2U);
}

}  // namespace
}  // namespace lockstep::train
