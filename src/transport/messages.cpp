#include "transport/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "transport/bytes.h"

namespace lockstep::transport {

namespace {

enum class Kind : std::uint8_t {
  kGather = 1,
  kGathered,
  kFailed,
  kGoodbye,
  kLeft,
  kWelcome,
  kRefused,
};

void put_rank(std::string& out, int rank) {
  put_number(out, static_cast<std::uint32_t>(rank));
}

void put_text(std::string& out, std::string_view text) {
  put_number(out, static_cast<std::uint32_t>(text.size()));
  out += text;
}

/// Writes a message's kind and content.
struct Writer {
  std::string out;

  void kind(Kind kind) { out += static_cast<char>(kind); }
  void operator()(const Gather& gather) {
    kind(Kind::kGather);
    put_text(out, gather.tag);
    put_number(out, static_cast<std::uint32_t>(gather.members.size()));
    for (const int member : gather.members) put_rank(out, member);
    put_text(out, gather.blob);
  }
  void operator()(const Gathered& gathered) {
    kind(Kind::kGathered);
    put_text(out, gathered.tag);
    put_rank(out, gathered.rank);
    put_number(out, gathered.group);
    put_text(out, gathered.blob);
  }
  void operator()(const Failed& failed) {
    kind(Kind::kFailed);
    put_rank(out, failed.peer);
    put_text(out, std::string_view(failed.text).substr(0, kMaxTextBytes));
    out += static_cast<char>(failed.timeout);
  }
  void operator()(const Goodbye&) { kind(Kind::kGoodbye); }
  void operator()(const Left& left) {
    kind(Kind::kLeft);
    put_rank(out, left.rank);
  }
  void operator()(const Welcome& welcome) {
    kind(Kind::kWelcome);
    put_number(out, static_cast<std::uint64_t>(welcome.pid));
  }
  void operator()(const Refused& refused) {
    kind(Kind::kRefused);
    out += static_cast<char>(refused.timeout);
    put_rank(out, refused.peer);
    put_text(out, std::string_view(refused.text).substr(0, kMaxTextBytes));
  }
};

/// Takes a message apart, never past its end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1)[0]); }
  std::uint32_t number() { return get_number<std::uint32_t>(take(4)); }
  std::uint64_t long_number() { return get_number<std::uint64_t>(take(8)); }
  bool flag() {
    const std::uint8_t value = byte();
    if (value > 1) throw FrameError(fmt::format("a flag is {}, expected 0 or 1", value));
    return value == 1;
  }
  int rank(int lowest = 0) {
    const int value = static_cast<int>(number());
    if (value < lowest || value >= kMaxWorld) throw FrameError(fmt::format("{} is no rank", value));
    return value;
  }
  std::string text(const char* what, std::size_t limit) {
    const std::uint32_t size = number();
    if (size > limit)
      throw FrameError(fmt::format("a {} of {} bytes, at most {} allowed", what, size, limit));
    return std::string(take(size));
  }
  std::vector<int> ranks() {
    const std::uint32_t count = number();
    if (count > bytes_.size() / 4)
      throw FrameError(fmt::format("{} ranks in {} bytes", count, bytes_.size()));
    std::vector<int> found(count);
    for (int& one : found) one = rank();
    const auto descent = std::adjacent_find(found.begin(), found.end(), std::greater_equal<>());
    if (descent != found.end()) throw FrameError(fmt::format("after rank {} comes {}", *descent, descent[1]));
    return found;
  }
  void end() const {
    if (!bytes_.empty()) throw FrameError(fmt::format("{} bytes follow a message's end", bytes_.size()));
  }

 private:
  std::string_view take(std::size_t size) {
    if (size > bytes_.size()) {
      throw FrameError(fmt::format("a message ends after {} of {} bytes", bytes_.size(), size));
    }
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  std::string_view bytes_;
};

Message read(Reader& reader) {
  // Members of a braced list are read in order.
  const std::uint8_t kind = reader.byte();
  switch (static_cast<Kind>(kind)) {
    case Kind::kGather:
      return Gather{reader.text("tag", kMaxTagBytes), reader.ranks(), reader.text("blob", kMaxBlobBytes)};
    case Kind::kGathered:
      return Gathered{reader.text("tag", kMaxTagBytes), reader.rank(), reader.long_number(),
                      reader.text("blob", kMaxBlobBytes)};
    case Kind::kFailed:
      return Failed{reader.rank(-1), reader.text("failure", kMaxTextBytes), reader.flag()};
    case Kind::kGoodbye:
      return Goodbye{};
    case Kind::kLeft:
      return Left{reader.rank()};
    case Kind::kWelcome:
      return Welcome{static_cast<std::int64_t>(reader.long_number())};
    case Kind::kRefused:
      return Refused{reader.flag(), reader.rank(-1), reader.text("refusal", kMaxTextBytes)};
  }
  throw FrameError(fmt::format("there is no message of kind {}", kind));
}

}  // namespace

std::string encode(const Message& message) {
  Writer writer;
  std::visit(writer, message);
  return std::move(writer.out);
}

Message decode(std::string_view bytes) {
  Reader reader(bytes);
  Message message = read(reader);
  reader.end();
  return message;
}

}  // namespace lockstep::transport
