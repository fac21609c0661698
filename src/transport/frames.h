#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "transport/messages.h"

namespace lockstep::transport {

/// Bytes of a frame's length.
constexpr std::size_t kFrameHeaderBytes = 4;

/// The longest frame that ranks of a job of this size send each other.
std::size_t frame_limit(int world);

/// A message as it travels: its length, then itself.
std::string to_frame(const Message& message);

/// Reads a frame's length from its first kFrameHeaderBytes. Throws FrameError if it is over `limit`.
std::size_t frame_length(std::string_view header, std::size_t limit);

/// Makes messages of bytes that come in any pieces. Keeps at most one frame and what came with its end.
class FrameParser {
 public:
  explicit FrameParser(std::size_t limit) : limit_(limit) {}

  void feed(std::string_view bytes);
  /// The next whole message, if there is one. Throws FrameError if the bytes are none: nothing more can be
  /// read from that peer then. A length over the limit is refused before its content has come.
  std::optional<Message> next();

 private:
  std::size_t limit_;
  std::string buffer_;
  std::size_t read_ = 0;  ///< So much of the buffer is used up.
};

}  // namespace lockstep::transport
