// Event files, decoded by a reader of their own: bit by bit where the writer has tables.
#include "train/run/tensorboard.h"
#include "support/child.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <climits>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>

#include "lockstep/error.h"
#include "support/temporary_folder.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::ThrowsMessage;

uint32_t crc_bit_by_bit(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78 : crc >> 1;
  }
  return crc ^ 0xffffffff;
}

uint32_t mask(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

// Takes bytes off the front of a text, and refuses to take more than it has.
struct Bytes {
  std::string_view rest;

  std::string_view take(uint64_t count) {
    if (count > rest.size()) throw std::runtime_error("the bytes end too early");
    const std::string_view taken = rest.substr(0, count);
    rest.remove_prefix(count);
    return taken;
  }
  template <typename Number>
  Number take() {
    static_assert(std::endian::native == std::endian::little);
    Number number;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  uint64_t varint() {
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = take<uint8_t>();
      number |= uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return number;
    }
    throw std::runtime_error("a varint of more than ten bytes");
  }
};

// The fields of a message by number: a varint as its number, all else as its bytes.
struct Message {
  std::map<uint64_t, uint64_t> numbers;
  std::map<uint64_t, std::string> bytes;

  explicit Message(std::string_view text) {
    for (Bytes in{text}; !in.rest.empty();) {
      const uint64_t key = in.varint();
      switch (key & 7) {
        case 0:
          numbers[key >> 3] = in.varint();
          break;
        case 1:
          bytes[key >> 3] = in.take(8);
          break;
        case 2:
          bytes[key >> 3] = in.take(in.varint());
          break;
        case 5:
          bytes[key >> 3] = in.take(4);
          break;
        default:
          throw std::runtime_error(fmt::format("key {}", key));
      }
    }
  }
  template <typename Number>
  Number fixed(uint64_t field) const {
    return Bytes{bytes.at(field)}.take<Number>();
  }
};

std::vector<Message> events_of(const std::string& text) {
  std::vector<Message> events;
  for (Bytes in{text}; !in.rest.empty();) {
    const std::string_view length = in.take(8);
    if (in.take<uint32_t>() != mask(crc_bit_by_bit(length))) throw std::runtime_error("checksum of a length");
    const std::string_view data = in.take(Bytes{length}.take<uint64_t>());
    if (in.take<uint32_t>() != mask(crc_bit_by_bit(data))) throw std::runtime_error("checksum of data");
    events.emplace_back(data);
  }
  return events;
}

struct Scalar {
  std::string tag;
  float value;
  int64_t step;
  double wall_time;
  friend bool operator==(const Scalar&, const Scalar&) = default;
};

std::vector<Scalar> scalars_of(const fs::path& file) {
  std::vector<Scalar> scalars;
  for (const Message& event : events_of(test::read_file(file))) {
    if (!event.bytes.contains(5)) continue;
    const Message value(Message(event.bytes.at(5)).bytes.at(1));
    scalars.push_back({.tag = value.bytes.at(1),
                       .value = value.fixed<float>(2),
                       .step = static_cast<int64_t>(event.numbers.at(2)),
                       .wall_time = event.fixed<double>(1)});
  }
  return scalars;
}

TEST(Crc32c, OfKnownTexts) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(mask(crc32c("123456789")), 0xc78ab0e5U);
  EXPECT_EQ(crc32c(""), 0U);
  // RFC 3720, B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
}

TEST(Crc32c, IsTheOneThatIsTakenBitByBit) {
  std::mt19937 random(3);
  for (size_t size = 0; size < 300; ++size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    ASSERT_EQ(crc32c(bytes), crc_bit_by_bit(bytes)) << size;
  }
}

TEST(TensorBoardWriter, NamesItsFileByTimeHostAndProcess) {
  const TemporaryFolder folder;
  const TensorBoardWriter writer(folder / "made/for/it");
  std::array<char, HOST_NAME_MAX + 1> host{};
  ASSERT_EQ(gethostname(host.data(), host.size()), 0);
  EXPECT_EQ(writer.path().parent_path(), folder / "made/for/it");
  EXPECT_THAT(
      writer.path().filename().string(),
      MatchesRegex(fmt::format("events\\.out\\.tfevents\\.[0-9]{{10}}\\.{}\\.{}", host.data(), getpid())));
  EXPECT_TRUE(fs::is_regular_file(writer.path()));
}

TEST(TensorBoardWriter, BeginsWithTheVersionAndTheStepThatItGoesOnWith) {
  const TemporaryFolder folder;
  for (const int64_t last_step : {0, 41}) {
    const TensorBoardWriter writer(folder.path(), last_step);
    const auto events = events_of(test::read_file(writer.path()));
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[0].bytes.at(3), "brain.Event:2");
    EXPECT_GT(events[0].fixed<double>(1), 1.6e9);
    EXPECT_EQ(events[1].numbers.at(2), static_cast<uint64_t>(last_step) + 1);
    const Message session_log(events[1].bytes.at(7));
    EXPECT_EQ(session_log.numbers.at(1), 1U) << "SessionLog::START";
  }
}

TEST(TensorBoardWriter, WritesARecordOfTheseBytes) {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path());
  const size_t before = test::read_file(writer.path()).size();
  writer.scalar("loss", 2.25, 300, 1700000000.5);
  std::string hex;
  for (const char c : test::read_file(writer.path()).substr(before))
    hex += fmt::format("{:02x}", static_cast<uint8_t>(c));
  EXPECT_EQ(hex,
            "1b000000000000001a0d9e13"  // length and its checksum
            "0900002040fc54d941"        // wall time
            "10ac02"                    // step
            "2a0d0a0b"                  // summary, value
            "0a046c6f7373"              // tag
            "1500001040"                // simple value
            "f8222adc");                // checksum
}

TEST(TensorBoardWriter, WritesTagsValuesStepsAndTimesThatReadBack) {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path());
  std::mt19937_64 random(8);
  std::vector<Scalar> expected;
  for (int i = 0; i < 1000; ++i) {
    Scalar scalar{
        .tag = fmt::format("train/{}", random() % 10),
        .value = std::ldexp(static_cast<float>(random() >> 40), static_cast<int>(random() % 80) - 60),
        .step = static_cast<int64_t>(random() >> (random() % 64)),
        .wall_time = static_cast<double>(random() >> 20)};
    writer.scalar(scalar.tag, scalar.value, scalar.step, scalar.wall_time);
    expected.push_back(scalar);
  }
  writer.scalar(std::string(70'000, 't'), -1, 0, 0);
  expected.push_back({.tag = std::string(70'000, 't'), .value = -1, .step = 0, .wall_time = 0});
  EXPECT_EQ(scalars_of(writer.path()), expected) << "while the file is open";
}

// A number grows by a byte at every seventh bit, those of steps and of lengths alike.
TEST(TensorBoardWriter, WritesStepsAndLengthsOfEveryNumberOfBytes) {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path());
  std::vector<Scalar> expected;
  for (int bits = 1; bits < 63; ++bits) {
    for (const int64_t step : {(int64_t{1} << bits) - 1, int64_t{1} << bits}) {
      const std::string tag(static_cast<size_t>(100 + bits), 't');
      writer.scalar(tag, 1, step, 0);
      expected.push_back({.tag = tag, .value = 1, .step = step, .wall_time = 0});
    }
  }
  EXPECT_EQ(scalars_of(writer.path()), expected);
}

TEST(TensorBoardWriter, WritesWhatIsNotFiniteAsItIs) {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path());
  writer.scalar("loss", std::nan(""), 1, 0);
  writer.scalar("loss", -std::numeric_limits<double>::infinity(), 2, 0);
  writer.scalar("loss", 1e300, 3, 0);
  const auto scalars = scalars_of(writer.path());
  EXPECT_TRUE(std::isnan(scalars.at(0).value));
  EXPECT_EQ(scalars.at(1).value, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(scalars.at(2).value, std::numeric_limits<float>::infinity());
}

TEST(TensorBoardWriter, SecondFileOfTheSameSecondComesBehindTheFirst) {
  const TemporaryFolder folder;
  TensorBoardWriter first(folder.path());
  TensorBoardWriter second(folder.path());
  EXPECT_LT(first.path(), second.path());
  first.scalar("a", 1, 1, 0);
  second.scalar("b", 2, 2, 0);
  EXPECT_THAT(scalars_of(first.path()),
              ElementsAre(Scalar{.tag = "a", .value = 1, .step = 1, .wall_time = 0}));
  EXPECT_THAT(scalars_of(second.path()),
              ElementsAre(Scalar{.tag = "b", .value = 2, .step = 2, .wall_time = 0}));
}

TEST(TensorBoardWriter, RefusesAFolderThatCannotBe) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_THAT([&] { TensorBoardWriter(folder / "file"); },
              ThrowsMessage<Error>(HasSubstr("; hint: name a folder that you may write")));
}

}  // namespace
}  // namespace lockstep::train
