#include "train/run/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <climits>
#include <limits>

#include "lockstep/error.h"
#include "transport/bytes.h"

namespace lockstep::train {

namespace {

namespace fs = std::filesystem;
using transport::put_number;

static_assert(std::numeric_limits<float>::is_iec559 && std::numeric_limits<double>::is_iec559);

constexpr std::array<uint32_t, 256> make_crc_table() {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // lowest bit first
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrc32cTable = make_crc_table();

// The key of a field is its number and how its value is written: protobuf.dev/programming-guides/encoding.
enum Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_key(std::string& out, int field, Wire wire) {
  out += static_cast<char>(field << 3 | wire);
}

void put_varint(std::string& out, uint64_t number) {
  for (; number >= 0x80; number >>= 7) out += static_cast<char>((number & 0x7f) | 0x80);
  out += static_cast<char>(number);
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

struct What {
  int field;
  std::string bytes;
};

std::string event(double wall_time, int64_t step, const What& what) {
  std::string out;
  put_key(out, 1, kFixed64);
  put_number(out, std::bit_cast<uint64_t>(wall_time));
  put_key(out, 2, kVarint);
  put_varint(out, static_cast<uint64_t>(step));
  put_bytes(out, what.field, what.bytes);
  return out;
}

What file_version() {
  return {.field = 3, .bytes = "brain.Event:2"};
}

What session_start() {
  std::string session_log;
  put_key(session_log, 1, kVarint);
  put_varint(session_log, 1);  // SessionLog::START
  return {.field = 7, .bytes = session_log};
}

What summary(std::string_view tag, float number) {
  std::string value;
  put_bytes(value, 1, tag);
  put_key(value, 2, kFixed32);
  put_number(value, std::bit_cast<uint32_t>(number));
  What what{.field = 5, .bytes = {}};
  put_bytes(what.bytes, 1, value);
  return what;
}

// A CRC of bytes that hold a CRC says little; TFRecord masks it for that.
uint32_t masked(uint32_t crc) {
  return std::rotr(crc, 15) + 0xa282ead8;
}

std::string record(std::string_view data) {
  std::string out;
  put_number(out, uint64_t{data.size()});
  put_number(out, masked(crc32c(out)));
  out += data;
  put_number(out, masked(crc32c(data)));
  return out;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

fs::path new_file(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) {
    throw Error(fmt::format("cannot make {}: {}; hint: name a folder that you may write", folder.string(),
                            failure.message()));
  }
  std::array<char, HOST_NAME_MAX + 1> host{};
  if (gethostname(host.data(), host.size()) != 0) throw Error("this host's name is not to be had");
  // TensorBoard reads files in the order of their names: a second file of the same second comes later.
  for (auto seconds = static_cast<int64_t>(now());; ++seconds) {
    fs::path file = folder / fmt::format("events.out.tfevents.{}.{}.{}", seconds, host.data(), getpid());
    if (!fs::exists(file, failure)) return file;
  }
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) crc = kCrc32cTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

TensorBoardWriter::TensorBoardWriter(const fs::path& folder, int64_t last_step) : file_(new_file(folder)) {
  file_.append(record(event(now(), 0, file_version())));
  file_.append(record(event(now(), last_step + 1, session_start())));
}

void TensorBoardWriter::scalar(const std::string& tag, double value, int64_t step, double wall_time) {
  file_.append(record(event(wall_time, step, summary(tag, static_cast<float>(value)))));
}

}  // namespace lockstep::train
