#include "transport/call_board.h"

namespace lockstep::transport {

namespace {

constexpr std::chrono::nanoseconds kLookOnce{0};

}  // namespace

CallBoard::CallBoard(Wire& wire, int rank, std::vector<int> members, uint64_t channel)
    : wire_(wire), rank_(rank), members_(std::move(members)), channel_(channel), seats_(members_.size()) {}

void CallBoard::look(const Header& header, int peer) {
  for (int other = 0; other < static_cast<int>(members_.size()); ++other) {
    if (other == rank_) continue;
    try {
      if (other == peer) tell(header, other);
      listen(other);
    } catch (const Wire::Broken&) {
      continue;  // whoever waits for that rank finds out; here it has nothing to say
    }
    const auto& heard = seats_[static_cast<size_t>(other)].heard;
    // A rank that is ahead or behind may be right: only the same call can be compared.
    if (heard && heard->call == header.call && *heard != header) {
      throw Mismatch{.peer = other, .ours = header, .theirs = *heard};
    }
  }
}

void CallBoard::tell(const Header& header, int peer) {
  Seat& seat = seats_[static_cast<size_t>(peer)];
  if (seat.told && (seat.told->header == header || !seat.told->post->wait_for(kLookOnce))) return;
  auto note = std::make_unique<Note>(Note{.header = header, .post = {}});
  note->post = wire_.send(members_[static_cast<size_t>(peer)], channel_, &note->header, sizeof(Header));
  seat.told = std::move(note);
}

void CallBoard::listen(int peer) {
  Seat& seat = seats_[static_cast<size_t>(peer)];
  const auto post = [&] {
    seat.coming = std::make_unique<Note>();
    seat.coming->post =
        wire_.receive(members_[static_cast<size_t>(peer)], channel_, &seat.coming->header, sizeof(Header));
  };
  if (!seat.coming) post();
  while (seat.coming->post && seat.coming->post->wait_for(kLookOnce)) {
    seat.heard = seat.coming->header;
    post();
  }
}

}  // namespace lockstep::transport
