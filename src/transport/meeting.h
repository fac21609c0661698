#pragma once

#include <string>
#include <string_view>

#include "transport/control.h"
#include "transport/greeting.h"
#include "transport/io.h"
#include "transport/messages.h"

namespace lockstep::transport {

/// A meeting under way: who meets, and the words for what goes wrong.
class Meeting {
 public:
  /// Throws UsageError if the options contradict themselves.
  explicit Meeting(const MeetOptions& options);

  int rank() const { return options_.rank; }
  int world() const { return options_.world; }
  const std::string& name() const { return options_.name; }
  Deadline deadline() const { return options_.deadline; }
  /// Who this rank says it is.
  const Claim& claim() const { return claim_; }

  /// "meeting NAME on rank R: WHAT"
  std::string text(std::string_view what) const;
  /// How long the meeting may last: "5 s".
  std::string patience() const { return seconds_text(options_.deadline - started_); }

 private:
  MeetOptions options_;
  Control::Clock::time_point started_ = Control::Clock::now();
  Claim claim_;
};

/// On a rank other than 0, which rank 0 now knows: waits until all ranks have come, and reads not a byte more
/// than rank 0's word of it. Throws what rank 0 refuses the meeting with, or TimeoutError a moment after the
/// deadline: rank 0 then knows better who did not come.
Welcome await_welcome(const Meeting& meeting, int socket);

/// Best effort, at once: the peer may be gone.
void send_word(int socket, const Message& message);

}  // namespace lockstep::transport
