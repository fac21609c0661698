#include "transport/ranks.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "launch/ports.h"
#include "lockstep/error.h"

namespace lockstep::test {

namespace {

std::mutex g_rank_threads_mutex;
std::set<pthread_t> g_rank_threads;  ///< Of run_ranks().
std::atomic<int> g_delivered = 0;

struct RankThread {
  RankThread() {
    const std::lock_guard lock(g_rank_threads_mutex);
    g_rank_threads.insert(pthread_self());
  }
  ~RankThread() {
    const std::lock_guard lock(g_rank_threads_mutex);
    g_rank_threads.erase(pthread_self());
  }
};

/// Empty if another program took the port first.
std::vector<std::unique_ptr<Control>> try_to_meet(Way way, int world) {
  std::vector<std::unique_ptr<Control>> controls(static_cast<std::size_t>(world));
  const std::string name = fresh_name();
  const int port = launch::find_free_port();
  std::atomic<bool> taken = false;
  const auto meet = [&](int rank) {
    const transport::MeetOptions options{.rank = rank, .world = world, .name = name, .deadline = patience()};
    auto& control = controls[static_cast<std::size_t>(rank)];
    if (way == Way::kHost) {
      control = transport::meet_on_host(options, -1).control;
    } else {
      control = transport::meet_on_network(options, network_at(port, name));
    }
  };
  try {
    run_ranks(world, [&](int rank) {
      try {
        meet(rank);
      } catch (const UsageError& error) {
        if (std::string(error.what()).find("cannot listen") == std::string::npos) throw;
        taken = true;
      }
    });
  } catch (const UsageError&) {
    if (!taken) throw;
  }
  if (taken) controls.clear();
  return controls;
}

}  // namespace

std::string to_string(Way way) {
  return way == Way::kHost ? "Host" : "Network";
}

Control::Clock::time_point patience() {
  return Control::Clock::now() + std::chrono::seconds(60);
}

Control::Clock::time_point in_ms(int ms) {
  return Control::Clock::now() + std::chrono::milliseconds(ms);
}

std::string fresh_name() {
  static std::atomic<int> count = 0;
  return fmt::format("control-test-{}-{}", getpid(), count++);
}

transport::NetworkOptions network_at(int port, const std::string& token) {
  return {.address = "127.0.0.1", .port = port, .token = token};
}

void run_ranks(int world, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const RankThread registered;
      try {
        body(rank);
      } catch (...) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& exception : thrown) {
    if (exception) std::rethrow_exception(exception);
  }
}

SignalStorm::SignalStorm() {
  struct sigaction action = {};
  action.sa_handler = [](int) { ++g_delivered; };  // no SA_RESTART: calls are interrupted
  sigaction(SIGUSR1, &action, &before_);
  thread_ = std::thread([this] {
    while (!over_) {
      {
        const std::lock_guard lock(g_rank_threads_mutex);
        for (const pthread_t thread : g_rank_threads) pthread_kill(thread, SIGUSR1);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // they shall come to wait again
    }
  });
}

SignalStorm::~SignalStorm() {
  over_ = true;
  thread_.join();
  sigaction(SIGUSR1, &before_, nullptr);
}

int SignalStorm::delivered() {
  return g_delivered;
}

std::vector<std::unique_ptr<Control>> meet_all(Way way, int world) {
  for (;;) {
    auto controls = try_to_meet(way, world);
    if (!controls.empty()) return controls;
  }
}

void leave_all(const std::vector<std::unique_ptr<Control>>& controls) {
  run_ranks(static_cast<int>(controls.size()),
            [&](int rank) { controls[static_cast<std::size_t>(rank)]->leave(patience()); });
}

std::vector<int> all_of(int world) {
  std::vector<int> ranks(static_cast<std::size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

launch::UniqueFd make_memfd(const std::string& text) {
  launch::UniqueFd fd(memfd_create("control_test", MFD_CLOEXEC));
  if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) throw Error("memfd");
  return fd;
}

std::string read_memfd(int fd) {
  std::string text(256, '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

int count_own(const std::string& folder) {
  const std::filesystem::directory_iterator entries("/proc/self/" + folder);
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

}  // namespace lockstep::test
