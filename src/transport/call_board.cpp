#include "transport/call_board.h"

#include <algorithm>

namespace lockstep::transport {

namespace {

constexpr std::chrono::nanoseconds kLookOnce{0};
constexpr int64_t kMostIdleMs = 365LL * 24 * 3600 * 1000;  // what a peer says beyond that is not believed

}  // namespace

CallBoard::CallBoard(Wire& wire, int rank, std::vector<int> members, uint64_t channel)
    : wire_(wire), rank_(rank), members_(std::move(members)), channel_(channel), seats_(members_.size()) {}

CallBoard::Time CallBoard::look(const Header& header, int peer, Time moved) {
  using std::chrono::milliseconds;
  const Time now = std::chrono::steady_clock::now();
  const auto idle = std::chrono::duration_cast<milliseconds>(now - moved);
  for (int other = 0; other < static_cast<int>(members_.size()); ++other) {
    if (other == rank_) continue;
    Seat& seat = seats_[static_cast<size_t>(other)];
    try {
      receive(other);
      Note note = {.header = header,
                   .idle_ms = idle.count(),
                   .answer = seat.to_answer,
                   .awaited = awaited_through(peer)};
      if (other == peer && (seat.is_answered || seat.asked_in != header)) note.question = seat.asked + 1;
      const bool is_free = !seat.sent || seat.sent->post->wait_for(kLookOnce);
      if (is_free && (note.question != 0 || note.answer != 0)) {
        send(note, other);
        seat.to_answer = 0;
        if (note.question != 0) {
          seat.asked = note.question;
          seat.asked_at = now;
          seat.asked_in = header;
          seat.is_answered = false;
        }
      }
    } catch (const Wire::Broken&) {
      continue;  // whoever waits for that rank finds out; here it has nothing to say
    }
    // A rank that is ahead or behind may be right: only the same call can be compared.
    if (seat.shown && seat.shown->call == header.call && *seat.shown != header) {
      throw Mismatch{.peer = other, .ours = header, .theirs = *seat.shown};
    }
  }
  return seats_[static_cast<size_t>(peer)].moved;
}

int CallBoard::awaited_through(int peer) const {
  // A rank that waits answers within about 0.25 s; this leaves room for a busy machine.
  constexpr std::chrono::seconds kRecent{1};
  const Seat& seat = seats_[static_cast<size_t>(peer)];
  const bool is_responsive =
      seat.asked != 0 && (seat.is_answered || std::chrono::steady_clock::now() - seat.asked_at < kRecent);
  const bool is_other =
      seat.awaited >= 0 && seat.awaited < static_cast<int>(members_.size()) && seat.awaited != rank_;
  return is_responsive && is_other ? seat.awaited : peer;
}

void CallBoard::send(const Note& note, int peer) {
  auto letter = std::make_unique<Letter>(Letter{.note = note});
  letter->post = wire_.send(members_[static_cast<size_t>(peer)], channel_, &letter->note, sizeof(Note));
  seats_[static_cast<size_t>(peer)].sent = std::move(letter);
}

void CallBoard::receive(int peer) {
  Seat& seat = seats_[static_cast<size_t>(peer)];
  const auto post = [&] {
    seat.coming = std::make_unique<Letter>();
    seat.coming->post =
        wire_.receive(members_[static_cast<size_t>(peer)], channel_, &seat.coming->note, sizeof(Note));
  };
  if (!seat.coming) post();
  while (seat.coming->post && seat.coming->post->wait_for(kLookOnce)) {
    const Note& note = seat.coming->note;
    seat.shown = note.header;
    seat.awaited = note.awaited;
    if (note.question != 0) seat.to_answer = note.question;
    if (note.answer != 0 && note.answer == seat.asked) {
      // It was given after the question, nobody knows how long: this is the earliest.
      const auto idle = std::chrono::milliseconds(std::clamp<int64_t>(note.idle_ms, 0, kMostIdleMs));
      seat.moved = std::max(seat.moved, seat.asked_at - idle);
      seat.is_answered = true;
    }
    post();
  }
}

}  // namespace lockstep::transport
