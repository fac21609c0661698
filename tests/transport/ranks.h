#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "launch/unique_fd.h"
#include "transport/control.h"

namespace lockstep::test {

using transport::Control;

/// Ranks find each other by a unix socket or over TCP; from then on there must be no difference.
enum class Way { kHost, kNetwork };
std::string to_string(Way way);

/// A deadline that a test which works never sees.
Control::Clock::time_point patience();
/// A deadline that a test waits for.
Control::Clock::time_point in_ms(int ms);

/// A meeting's name, and a token, that nobody else has.
std::string fresh_name();

transport::NetworkOptions network_at(int port, const std::string& token);

/// Runs `body(rank)` in a thread each; when all have ended, throws what the lowest rank threw, if any did.
void run_ranks(int world, const std::function<void(int)>& body);

/// While it lives, the threads of run_ranks() get signal after signal, which interrupt what they wait in.
class SignalStorm {
 public:
  SignalStorm();
  ~SignalStorm();
  SignalStorm(const SignalStorm&) = delete;
  SignalStorm& operator=(const SignalStorm&) = delete;
  static int delivered();  ///< Signals, so far.

 private:
  struct sigaction before_ = {};
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

/// A control plane for each rank of a job, all in this process.
std::vector<std::unique_ptr<Control>> meet_all(Way way, int world);

/// All ranks leave, each in its thread.
void leave_all(const std::vector<std::unique_ptr<Control>>& controls);

/// 0, ..., world - 1.
std::vector<int> all_of(int world);

/// The text of the Error that `body` throws; "" if it throws none.
template <typename Error>
std::string text_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// A memfd that holds `text`, and what one holds.
launch::UniqueFd make_memfd(const std::string& text);
std::string read_memfd(int fd);

/// Entries of a folder of /proc/self: open descriptors ("fd"), threads ("task").
int count_own(const std::string& folder);

}  // namespace lockstep::test
