#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// What lessons are written against: ranks of a small simulated cluster, whose messages are real and whose
/// clock is not.
namespace lab {

class Agent;

/// A message or a stream that was started; it is over when wait() returns.
class Work {
 public:
  Work() = default;
  explicit Work(std::function<void()> wait) : wait_(std::move(wait)) {}
  /// Waits. A second call does nothing.
  void wait();

 private:
  std::function<void()> wait_;
};

/// One rank, as its own code sees it. Names and the order of arguments are those of lockstep::Communicator.
///
/// Messages between two ranks arrive in the order in which they were sent. Whether a send waits for its
/// receive is for the world to say (WorldOptions::rendezvous): right code works either way.
class Rank {
 public:
  explicit Rank(Agent& agent) : agent_(agent) {}

  int rank() const;
  int world_size() const;
  int get_next_rank() const { return (rank() + 1) % world_size(); }
  int get_prev_rank() const { return (rank() + world_size() - 1) % world_size(); }

  /// One message; the receiver must ask for as many floats as were sent.
  void send(std::span<const float> data, int to);
  void recv(std::span<float> data, int from);
  /// The same, started: `data` must stay as it is, or is not there yet, until wait().
  Work isend(std::span<const float> data, int to);
  Work irecv(std::span<float> data, int from);

  /// Works for so long: moves this rank's clock, and nobody else's.
  void compute(double us);
  /// This rank's clock, from 0.
  double now_us() const;

  /// Runs `body` beside this rank's own code: on its communication stream, which has a clock of its own and
  /// runs one body after the other, in the order in which they were started. It talks to the communication
  /// streams of the other ranks.
  Work start(std::function<void(Rank&)> body);

  /// A word in the trace.
  void note(const std::string& text);
  /// For checks: messages from and to this memory are recorded by their place in it.
  void watch(std::span<const float> data);

 private:
  Agent& agent_;
};

/// What one line of a trace says. Times are of the virtual clock, in microseconds.
struct Event {
  enum class Kind : uint8_t { kSend, kRecv, kCompute, kNote };
  int rank = 0;
  int stream = 0;  ///< 1 for the communication stream.
  Kind kind = Kind::kNote;
  int peer = -1;
  int64_t count = 0;   ///< Floats.
  int64_t place = -1;  ///< First float within the watched memory, -1 if it is elsewhere.
  double start_us = 0;
  double end_us = 0;
  std::string text = {};
};

struct WorldOptions {
  int world = 2;
  uint64_t seed = 1;  ///< Decides which rank runs when.
  bool rendezvous = false;
  double latency_us = 1;
  double us_per_byte = 0;
  bool keep_events = true;
};

/// How a run ended and what it moved.
struct Report {
  std::string problem;  ///< Its name, such as `deadlock`; empty if every rank came to its end.
  std::string what;     ///< Who did what, or who waits for whom.
  double time_us = 0;   ///< When the last rank was done.
  std::vector<double> done_us;
  std::vector<std::vector<int64_t>> bytes;     ///< [from][to]
  std::vector<std::vector<int64_t>> messages;  ///< [from][to]
  std::vector<Event> events;
  bool is_in_cycles = false;  ///< A simulated schedule without its messages: times are cycles.

  int64_t sent_bytes(int rank) const;
  int64_t received_bytes(int rank) const;
  int64_t sent_messages(int rank) const;
};

/// Runs `body` as every rank of a world, one at a time: which one goes on is drawn from the seed whenever a
/// rank sends, receives, waits or computes, so that a run can be repeated. A send takes latency + bytes *
/// us_per_byte, holds the sender's way out and the receiver's way in so long, and with rendezvous begins when
/// the receive has been asked for. Never throws for what `body` does: problems are `deadlock`, `exception`,
/// `wrong size`, `wrong rank`, `wrong stream`, `buffer changed`, `buffer in flight`, `never waited`, `never
/// received`, `endless`. Memory that a message is to be received into holds NaNs until wait() returns.
Report run_world(const WorldOptions& options, const std::function<void(Rank&)>& body);

/// Ends the run of the rank that calls it, as a problem by this name.
[[noreturn]] void refuse(const std::string& problem, const std::string& what);

/// Bytes that this process has allocated and not freed: it grows from step to step if something is kept.
size_t heap_bytes();

/// `1 rank`, `2 ranks`.
std::string counted(int64_t count, const std::string& noun);

/// What an exception says, without the stack that LibTorch adds.
std::string first_words(const std::exception& error);
/// The exception that is being handled, of any type: its words or its value.
std::string describe_exception();

/// What the process that runs a learner's code is doing, in memory that it shares with its parent: a crash or
/// an endless loop is reported with it.
struct Progress {
  int world = 0;  ///< 0 outside of a world.
  char text[508] = {};
};
Progress& progress();
void tell_progress(const std::string& text, int world = 0);

}  // namespace lab
