// What collectives and messages promise when something breaks, on every engine.
#include "comms/contract.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <system_error>
#include <thread>

#include "comms/contract_buffers.h"
#include "lockstep/error.h"
#include "support/sanitizers.h"

namespace lockstep::test {

namespace {

using std::chrono::milliseconds;

/// The type and the text of what `act` throws.
std::string thrown_by(const std::function<void()>& act) {
  try {
    act();
  } catch (const TimeoutError& error) {
    return fmt::format("TimeoutError: {}", error.what());
  } catch (const PeerError& error) {
    return fmt::format("PeerError: {}", error.what());
  } catch (const UsageError& error) {
    return fmt::format("UsageError: {}", error.what());
  } catch (const std::exception& error) {
    return fmt::format("another error: {}", error.what());
  }
  return "nothing was thrown";
}

/// What a rank gets that waits for something that never comes, until the job fails.
std::string wait_for_failure(Communicator& comm) {
  float never = 0;
  return thrown_by([&] {
    comm.recv(std::span(&never, 1), comm.get_next_rank(), 99, {.timeout = std::chrono::minutes(10)});
  });
}

/// "" if the text begins and goes on like this.
std::string judge(const std::string& text, const std::string& begin, const std::string& part) {
  const bool is_right = text.starts_with(begin) && text.find(part) != std::string::npos;
  return is_right ? "" : fmt::format("'{}' instead of '{} ... {}'\n", text, begin, part);
}

/// A call that is too late: on all ranks, the late one too, now and later.
std::string time_out(Communicator& comm, const std::string& title, const std::function<void()>& call) {
  const bool is_late = comm.rank() == comm.world_size() - 1;
  const std::string first = is_late ? wait_for_failure(comm) : thrown_by(call);
  return judge(first, fmt::format("TimeoutError: {} on rank", title), "; hint: ") +
         judge(thrown_by([&] { comm.barrier(); }), fmt::format("TimeoutError: {} on rank", title),
               "; hint: ") +
         judge(thrown_by([&] { comm.split(0); }), fmt::format("TimeoutError: {} on rank", title), "; hint: ");
}

std::string run_out_of_memory(Communicator& comm) {
  // Rank 0 needs more memory than a process can address, for the parts that pass through it. Rank 1 begins to
  // send, from what is there, and waits; its own part would be in place.
  constexpr int64_t kCount = int64_t{1} << 46;
  std::vector<uint8_t> there(size_t{8} << 20);
  const Buffer input(there.data(), 2 * kCount, DataType::kUInt8);
  const Buffer part(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(there.data()) + kCount), kCount,
                    DataType::kUInt8);
  const auto scatter = [&] {
    comm.barrier();  // the other is there
    comm.scatter(comm.rank() == 1 ? input : Buffer(), part, 1);
  };
  const std::string first = thrown_by(scatter);
  return judge(first, "PeerError: scatter #2 on rank 0: ", "bad_alloc") +
         judge(thrown_by([&] { comm.barrier(); }), "PeerError: scatter #2 on rank 0: ", "bad_alloc");
}

/// While it lives, this process can start no thread.
class NoThreads {
 public:
  NoThreads() {
    getrlimit(RLIMIT_AS, &before_);
    constexpr size_t kForErrors = size_t{6} << 20;  // less than a thread's stack
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<size_t>(getpagesize()) + kForErrors;
    setrlimit(RLIMIT_AS, &limit);
    try {  // stacks of threads that have ended are used again
      for (;;) threads_.emplace_back([this] { over_.wait(); });
    } catch (const std::system_error&) {
      // There are no more.
    }
  }
  ~NoThreads() {
    setrlimit(RLIMIT_AS, &before_);
    over_.count_down();
    for (auto& thread : threads_) thread.join();
  }

 private:
  rlimit before_ = {};
  std::latch over_{1};
  std::vector<std::thread> threads_;
};

std::string run_out_of_threads(Communicator& comm) {
  std::vector<float> data(1000);
  std::string first;
  if (comm.rank() == 0) {
    comm.barrier();  // the others are there
    const NoThreads none;
    first = thrown_by([&] { comm.iall_reduce(data); });
  } else {
    first = thrown_by([&] { comm.barrier(), comm.all_reduce(data); });
  }
  return judge(first, "PeerError: all_reduce on rank 0: ", "unavailable") +
         judge(thrown_by([&] { comm.barrier(); }), "PeerError: all_reduce on rank 0: ", "unavailable");
}

std::string drop_a_send(Communicator& comm) {
  std::vector<float> data(1'000'000);
  if (comm.rank() == 0) comm.isend(data, 1, 7, {.timeout = milliseconds(300)});
  return judge(wait_for_failure(comm), "TimeoutError: message with tag 7 on rank 0: rank 1 did not receive",
               "within the timeout");
}

std::string wait_in_several_threads(Communicator& comm) {
  std::vector<float> in(1000), out(1'000'000);
  std::vector<Work> works = {comm.irecv(in, comm.get_next_rank(), 3),
                             comm.isend(out, comm.get_next_rank(), 4)};
  // All have begun. A rank may get the failure here already.
  if (const auto text = thrown_by([&] { comm.barrier(); }); comm.rank() == 0 && text != "nothing was thrown")
    return text;
  constexpr int kThreads = 6;
  std::latch ready(kThreads + 1);
  std::vector<std::string> texts(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i, copies = works]() mutable {
      ready.arrive_and_wait();
      for (Work& work : copies) {
        const auto ask = [&] {
          if (i % 3 != 0) return work.wait();
          while (!work.is_completed()) std::this_thread::yield();
        };
        texts[static_cast<size_t>(i)] +=
            judge(thrown_by(ask), "PeerError: rank 0 ended the communication: enough", "");
        texts[static_cast<size_t>(i)] +=
            judge(thrown_by(ask), "PeerError: rank 0 ended the communication: enough", "");
        work = Work();
      }
    });
  }
  works.clear();
  ready.arrive_and_wait();
  if (comm.rank() == 0) comm.abort("enough");
  std::string all;
  for (size_t i = 0; i < threads.size(); ++i) {
    threads[i].join();
    all += texts[i];
  }
  return all;
}

}  // namespace

std::vector<Fault> faults() {
  constexpr milliseconds kLong{60'000};
  std::vector<Fault> all = {
      {"a collective that times out", 3, kLong,
       [](Communicator& comm) {
         std::vector<float> data(10);
         return time_out(comm, "all_reduce #1",
                         [&] { comm.all_reduce(data, ReduceOp::kSum, {.timeout = milliseconds(300)}); });
       }},
      {"a split that times out", 3, milliseconds(4000),
       [](Communicator& comm) { return time_out(comm, "split #1", [&] { comm.split(0); }); }},
      {"a send that nobody keeps or receives", 3, kLong, drop_a_send},
      {"several threads that wait for one message", 3, kLong, wait_in_several_threads, 20},
  };
  // A sanitizer's operator new would end the process.
  if (!kSanitizer) {
    all.push_back({"one rank out of memory", 2, kLong, run_out_of_memory});
    all.push_back({"one rank out of threads", 2, kLong, run_out_of_threads});
  }
  return all;
}

std::vector<std::string> check_forked_child(Communicator& comm) {
  Problems problems;
  const int world = comm.world_size();
  const bool is_last = comm.rank() == world - 1;
  // Everything that a child could trip over: queued work that runs and that is over, messages, groups,
  // memory.
  auto data = values(comm.rank(), 1000);
  std::vector<float> in(1000);
  std::vector<Work> works = {comm.iall_reduce(data), comm.irecv(in, comm.get_prev_rank(), 21)};
  works[0].wait();
  auto group = comm.split(0);
  auto memory = comm.allocate(1000);
  if (!is_last) works.push_back(comm.ibarrier());  // runs until the last rank has ended its children
  const auto call_everything = [&] {
    std::string text;
    const std::vector<std::function<void()>> calls = {
        [&] { comm.all_reduce(data); },
        [&] { comm.iall_reduce(data); },
        [&] { comm.all_reduce_coalesced({data}); },
        [&] { comm.barrier(); },
        [&] { group->broadcast(data); },
        [&] { comm.send(data, comm.get_next_rank()); },
        [&] { comm.recv(data, comm.get_next_rank()); },
        [&] { comm.isend(data, comm.get_next_rank()); },
        [&] { comm.irecv(data, comm.get_next_rank()); },
        [&] { comm.split(0); },
        [&] { comm.allocate(10); },
        [&] { comm.abort(); },
    };
    const std::string expected = fmt::format("was created by process {}; hint: ", getppid());
    for (const auto& call : calls) text += judge(thrown_by(call), "UsageError: ", expected);
    for (const auto& work : works) {
      text += judge(thrown_by([&] { work.wait(); }), "UsageError: ", expected);
      text += judge(thrown_by([&] { work.is_completed(); }), "UsageError: ", expected);
    }
    return text;
  };
  for (const char* what : {"calls", "drops", "exits"}) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a child that hangs is ended
      std::string text;
      if (std::string_view(what) == "calls") text = call_everything();
      if (std::string_view(what) == "drops") {
        works.clear();
        group.reset();
        memory.reset();
        const Communicator dropped = std::move(comm);
      }
      std::fputs(text.c_str(), stderr);
      std::exit(text.empty() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) problems.push_back(fmt::format("a forked child that {}: status {}", what, status));
  }
  if (is_last) works.push_back(comm.ibarrier());
  auto out = values(comm.rank(), 1000);
  works.push_back(comm.isend(out, comm.get_next_rank(), 21));
  for (const auto& work : works) work.wait();
  expect(problems, "after the children", in, [&](int64_t i) { return value(comm.get_prev_rank(), i); });
  expect(problems, "before the children", data, [&](int64_t i) { return sum_of(world, i); });
  auto again = values(comm.rank(), 1000);
  group->all_reduce(again);
  expect(problems, "a group after the children", again, [&](int64_t i) { return sum_of(world, i); });
  return problems;
}

}  // namespace lockstep::test
