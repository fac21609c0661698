#include "transport/meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <variant>

#include "launch/printable.h"
#include "lockstep/error.h"
#include "transport/frames.h"

namespace lockstep::transport {

Meeting::Meeting(const MeetOptions& options) : options_(options) {
  if (options.world < 1 || options.world > kMaxWorld) {
    throw UsageError(text(fmt::format("world size {}, expected 1 to {}", options.world, kMaxWorld)));
  }
  if (options.rank < 0 || options.rank >= options.world) {
    throw UsageError(text(fmt::format("rank {} of world size {}, expected 0 to {}", options.rank,
                                      options.world, options.world - 1)));
  }
  if (options.name.empty()) throw UsageError(text("the meeting has no name; hint: name it after the job"));
  claim_ = {.rank = static_cast<std::uint32_t>(options.rank),
            .world = static_cast<std::uint32_t>(options.world),
            .pid = getpid(),
            .name = digest(options.name)};
}

std::string Meeting::text(std::string_view what) const {
  return fmt::format("meeting {} on rank {}: {}", launch::printable(options_.name), options_.rank, what);
}

namespace {

/// One frame, read exactly; nothing if rank 0 closed instead. Throws at the deadline.
std::optional<Message> receive_word(const Meeting& meeting, int socket) {
  constexpr std::chrono::milliseconds kGrace{250};
  const Deadline deadline =
      meeting.deadline() < Deadline::max() - kGrace ? meeting.deadline() + kGrace : meeting.deadline();
  std::string bytes;
  std::size_t size = kFrameHeaderBytes;
  for (const bool is_header : {true, false}) {
    const Delivery delivery = receive_exactly(socket, size, bytes, deadline);
    if (delivery == Delivery::kClosed) return std::nullopt;
    if (delivery == Delivery::kTimeout) {
      throw TimeoutError(
          meeting.text(fmt::format("rank 0 is there, but did not say within {} that all {} ranks "
                                   "have come; hint: were all ranks started?",
                                   meeting.patience(), meeting.world())),
          0);
    }
    if (is_header) size = frame_length(bytes, frame_limit(meeting.world()));
  }
  return decode(bytes);
}

}  // namespace

Welcome await_welcome(const Meeting& meeting, int socket) {
  std::optional<Message> word;
  try {
    word = receive_word(meeting, socket);
  } catch (const FrameError& error) {
    throw PeerError(meeting.text(fmt::format("rank 0 broke the protocol: {}; hint: do all ranks run the same "
                                             "Lockstep?",
                                             error.what())),
                    0);
  }
  if (!word) {
    throw PeerError(
        meeting.text(fmt::format("rank 0 ended the meeting without a word; hint: it died, or its {} "
                                 "ranks had already come and rank {} was started twice",
                                 meeting.world(), meeting.rank())),
        0);
  }
  if (const auto* welcome = std::get_if<Welcome>(&*word)) return *welcome;
  const auto* refused = std::get_if<Refused>(&*word);
  if (refused == nullptr) throw PeerError(meeting.text("rank 0 neither welcomed nor refused this rank"), 0);
  const std::string text = meeting.text("rank 0 refused: " + refused->text);
  if (refused->timeout) throw TimeoutError(text, refused->peer);
  throw PeerError(text, refused->peer);
}

void send_word(int socket, const Message& message) {
  send_all(socket, to_frame(message), Deadline::min());
}

}  // namespace lockstep::transport
