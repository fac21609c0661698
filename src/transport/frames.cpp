#include "transport/frames.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/bytes.h"

namespace lockstep::transport {

std::size_t frame_limit(int world) {
  constexpr std::size_t kRest = 1024;  // the tag, the lengths
  return kMaxBlobBytes + sizeof(std::uint32_t) * static_cast<std::size_t>(world) + kRest;
}

std::string to_frame(const Message& message) {
  const std::string content = encode(message);
  std::string frame;
  frame.reserve(kFrameHeaderBytes + content.size());
  put_number(frame, static_cast<std::uint32_t>(content.size()));
  return frame += content;
}

std::size_t frame_length(std::string_view header, std::size_t limit) {
  const std::size_t length = get_number<std::uint32_t>(header);
  if (length > limit) throw FrameError(fmt::format("a frame of {} bytes, at most {} allowed", length, limit));
  return length;
}

void FrameParser::feed(std::string_view bytes) {
  if (read_ > 0) {
    buffer_.erase(0, read_);
    read_ = 0;
  }
  buffer_ += bytes;
}

std::optional<Message> FrameParser::next() {
  const std::string_view rest = std::string_view(buffer_).substr(read_);
  if (rest.size() < kFrameHeaderBytes) return std::nullopt;
  const std::size_t length = frame_length(rest, limit_);
  if (rest.size() - kFrameHeaderBytes < length) return std::nullopt;
  read_ += kFrameHeaderBytes + length;
  return decode(rest.substr(kFrameHeaderBytes, length));
}

}  // namespace lockstep::transport
