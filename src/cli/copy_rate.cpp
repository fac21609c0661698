#include "cli/copy_rate.h"

#include <sched.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>

#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

constexpr int kRounds = 5;

/// A refusal costs accuracy only.
void stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu >= CPU_SETSIZE) return;
  CPU_SET(static_cast<unsigned>(cpu), &set);
  sched_setaffinity(0, sizeof set, &set);
}

/// One core's block and its copy, written by the thread that uses them so that they lie near its core.
class Blocks {
 public:
  explicit Blocks(size_t bytes) : bytes_(bytes), memory_(2 * bytes + 3 * kPage) {
    // Half a page apart, modulo pages: where the target lies a few bytes past the source, modulo pages, some
    // processors copy many times slower (AMD EPYC: 2.8 instead of 50 GB/s at 64 KiB), as malloc has it.
    const size_t past_page = reinterpret_cast<uintptr_t>(memory_.data()) % kPage;
    source_ = memory_.data() + kPage - past_page;
    target_ = source_ + (bytes + kPage - 1) / kPage * kPage + kPage / 2;
    std::memset(source_, 1, bytes_);
    std::memset(target_, 2, bytes_);
  }
  void copy(int times) {
    for (int i = 0; i < times; ++i) std::memcpy(target_, source_, bytes_);
  }
  char last_byte() const { return target_[bytes_ - 1]; }

 private:
  static constexpr size_t kPage = 4096;
  size_t bytes_;
  std::vector<char> memory_;
  char* source_ = nullptr;
  char* target_ = nullptr;
};

/// All cores copy a block each, in step; the fastest round counts.
double rate(const std::vector<int>& cpus, size_t block_bytes) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kRoundBytes = size_t{8} << 20;  // meeting at the barrier must not count
  const int times = static_cast<int>(std::max<size_t>(1, kRoundBytes / block_bytes));
  std::vector<Clock::time_point> ticks;
  // Runs when all threads have arrived: between two ticks every thread has copied its block `times` times.
  std::barrier in_step(static_cast<std::ptrdiff_t>(cpus.size()),
                       [&]() noexcept { ticks.push_back(Clock::now()); });
  ticks.reserve(kRounds + 1);
  std::vector<char> last_bytes(cpus.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < cpus.size(); ++i) {
    threads.emplace_back([&, i] {
      stay_on(cpus[i]);
      Blocks blocks(block_bytes);
      blocks.copy(1);
      in_step.arrive_and_wait();
      for (int round = 0; round < kRounds; ++round) {
        blocks.copy(times);
        in_step.arrive_and_wait();
      }
      last_bytes[i] = blocks.last_byte();
    });
  }
  for (auto& thread : threads) thread.join();
  if (std::count(last_bytes.begin(), last_bytes.end(), 1) != std::ssize(cpus)) {
    throw Error("memory copy gave wrong bytes");
  }
  auto best = Clock::duration::max();
  for (size_t i = 1; i < ticks.size(); ++i) best = std::min(best, ticks[i] - ticks[i - 1]);
  const auto bytes = static_cast<double>(block_bytes * cpus.size()) * times;
  return bytes / std::chrono::duration<double>(best).count();
}

std::vector<int> first_cpus(const std::vector<launch::Core>& cores) {
  std::vector<int> cpus;
  for (const auto& core : cores) cpus.push_back(core.cpus.front());
  return cpus;
}

}  // namespace

CopyRate measure_copy_rate(const std::vector<launch::Core>& cores, uint64_t cache_bytes,
                           uint64_t memory_bytes) {
  constexpr uint64_t kLeast = uint64_t{64} << 20;
  constexpr uint64_t kLeastOfACore = uint64_t{4} << 20;
  // Twice: copies may be stored past the caches, which then hold the source alone.
  const uint64_t wanted = std::max(kLeast, cache_bytes * 2);
  const uint64_t together = std::max(kLeastOfACore, std::min(wanted, memory_bytes / 2));
  const std::vector<int> cpus = first_cpus(cores);
  const auto block = std::max(kLeastOfACore, together / std::max<size_t>(1, cpus.size()));
  return {.one_core = rate({cpus.front()}, static_cast<size_t>(together)),
          .all_cores = rate(cpus, static_cast<size_t>(block))};
}

CopyRate measure_copy_rate_of(const std::vector<launch::Core>& cores, uint64_t block_bytes) {
  const std::vector<int> cpus = first_cpus(cores);
  return {.one_core = rate({cpus.front()}, static_cast<size_t>(block_bytes)),
          .all_cores = rate(cpus, static_cast<size_t>(block_bytes))};
}

}  // namespace lockstep::cli
