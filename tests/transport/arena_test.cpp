// The caching heap in shared memory.
#include "transport/arena.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "lockstep/error.h"
#include "support/sanitizers.h"
#include "transport/process_arena.h"

namespace lockstep::transport {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr size_t kSpan = size_t{256} << 20;

TEST(Arena, BlocksOfAnySizeAreAlignedAndDoNotOverlap) {
  Arena arena(kSpan);
  std::mt19937_64 random(1);
  struct Block {
    size_t bytes;
    unsigned char fill;
  };
  std::map<unsigned char*, Block> blocks;
  const auto check_and_free = [&](auto block) {
    const auto& [memory, kept] = *block;
    for (size_t i = 0; i < kept.bytes; i += kept.bytes / 16 + 1) ASSERT_EQ(memory[i], kept.fill);
    ASSERT_EQ(memory[kept.bytes - 1], kept.fill);
    arena.deallocate(memory);
    blocks.erase(block);
  };
  size_t asked = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (blocks.size() > 300 || (!blocks.empty() && random() % 3 == 0)) {
      const auto any = std::next(blocks.begin(), static_cast<std::ptrdiff_t>(random() % blocks.size()));
      asked -= any->second.bytes;
      check_and_free(any);
    } else {
      // All magnitudes from a byte to 2 MiB are equally likely.
      const size_t bytes = (size_t{1} << (random() % 22)) + random() % 100;
      const auto fill = static_cast<unsigned char>(random());
      auto* const memory = static_cast<unsigned char*>(arena.allocate(bytes));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(memory) % 128, 0U);
      std::memset(memory, fill, bytes);
      const auto after = blocks.upper_bound(memory);
      ASSERT_TRUE(after == blocks.end() || memory + bytes <= after->first);
      ASSERT_TRUE(after == blocks.begin() ||
                  std::prev(after)->first + std::prev(after)->second.bytes <= memory);
      blocks[memory] = {bytes, fill};
      asked += bytes;
    }
    ASSERT_GE(arena.use().used_bytes, asked);
    ASSERT_GE(arena.use().held_bytes, arena.use().used_bytes);
  }
  while (!blocks.empty()) check_and_free(blocks.begin());
  EXPECT_EQ(arena.use().used_bytes, 0U);
  EXPECT_GT(arena.use().held_bytes, 0U) << "kept for the next";
  arena.trim();
  EXPECT_EQ(arena.use().held_bytes, 0U);
}

TEST(Arena, WhatIsFreedIsGivenOutAgainWithoutAskingTheSystem) {
  Arena arena(kSpan);
  std::vector<size_t> sizes = {1, 100, 4096, 4097, 70'000, size_t{1} << 20, size_t{3} << 20};
  size_t held = 0;
  for (int step = 0; step < 10; ++step) {
    std::vector<void*> blocks;
    for (const size_t bytes : sizes) blocks.push_back(arena.allocate(bytes));
    for (void* block : blocks) arena.deallocate(block);
    if (step == 0) held = arena.use().held_bytes;
  }
  EXPECT_EQ(arena.use().held_bytes, held);
}

TEST(Arena, KeptMemoryOfOneSizeServesAnother) {
  Arena arena(size_t{32} << 20);
  std::vector<void*> blocks;
  for (int i = 0; i < 500; ++i) blocks.push_back(arena.allocate(48 << 10));
  for (int i = 0; i < 500; ++i) blocks.push_back(arena.allocate(1000));
  const size_t held = arena.use().held_bytes;
  for (void* block : blocks) arena.deallocate(block);
  arena.deallocate(arena.allocate(size_t{23} << 20));
  EXPECT_EQ(arena.use().held_bytes, held);
}

TEST(Arena, RefusesWhatWasNotAllocatedOrIsFreedTwice) {
  Arena arena(kSpan);
  for (const size_t bytes : {size_t{1}, size_t{5000}, size_t{1} << 20, size_t{5} << 20}) {
    auto* const block = static_cast<std::byte*>(arena.allocate(bytes));
    auto* const other = arena.allocate(bytes);
    const auto refuses = [&](void* memory) {
      EXPECT_THAT([&] { arena.deallocate(memory); },
                  ThrowsMessage<Error>(HasSubstr("was not allocated, or has been freed before")))
          << bytes;
    };
    refuses(block + 64);
    arena.deallocate(block);
    refuses(block);
    arena.deallocate(other);
    refuses(other);
    arena.trim();
    refuses(block);
  }
  int elsewhere = 0;
  EXPECT_THROW(arena.deallocate(&elsewhere), Error);
  EXPECT_EQ(arena.use().used_bytes, 0U);
}

TEST(Arena, RefusesMoreThanThereIsByAnErrorAndGoesOn) {
  Arena arena(kSpan);
  void* const small = arena.allocate(1000);
  EXPECT_THAT([&] { arena.allocate(kSpan + 1); }, ThrowsMessage<Error>(HasSubstr("asked for")));
  EXPECT_THAT([&] { arena.allocate(kSpan - 4096); }, ThrowsMessage<Error>(HasSubstr("asked for")));
  EXPECT_THROW(arena.allocate(~size_t{0}), Error);
  arena.deallocate(small);
  arena.deallocate(arena.allocate(kSpan));
}

/// What making an arena of this span throws under a limit of the process; exits with 7.
void make_under_limit(__rlimit_resource which, size_t limit_bytes, size_t span_bytes) {
  rlimit limit{};
  getrlimit(which, &limit);
  limit.rlim_cur = limit_bytes;
  setrlimit(which, &limit);
  try {
    const Arena arena(span_bytes);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(7);
  }
}

#if !defined(LOCKSTEP_ASAN) && !defined(LOCKSTEP_TSAN)  // whose shadows take terabytes of addresses
TEST(ArenaDeathTest, NamesTheLimitOfAddressesThatItPasses) {
  EXPECT_EXIT(make_under_limit(RLIMIT_AS, size_t{2} << 30, size_t{4} << 30), testing::ExitedWithCode(7),
              "4.0 GiB of addresses; this process may have 2.0 GiB in all .ulimit -v.; hint: ");
}

/// Whether a rank that is bound to one core leaves addresses to those of the others; exits with that.
void make_while_bound() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  sched_setaffinity(0, sizeof(one), &one);
  const rlimit limit = {.rlim_cur = size_t{8} << 30, .rlim_max = RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
  const auto cores = static_cast<size_t>(sysconf(_SC_NPROCESSORS_ONLN));
  std::_Exit(process_arena()->mapping().span_bytes() * cores <= limit.rlim_cur / 2 ? 7 : 1);
}

TEST(ArenaDeathTest, OfARankThatIsBoundToACoreLeavesRoomForTheOthers) {
  EXPECT_EXIT(make_while_bound(), testing::ExitedWithCode(7), "");
}
#endif

TEST(ArenaDeathTest, NamesTheLimitOfFilesThatItPasses) {
  EXPECT_EXIT(make_under_limit(RLIMIT_FSIZE, size_t{100} << 10, kSpan), testing::ExitedWithCode(7),
              "a file of 256.0 MiB; this process may write files of 100 KiB .ulimit -f.; hint: ");
}

TEST(ArenaSpan, LeavesRoomBetweenUsedBlocks) {
  constexpr size_t kMemory = size_t{32} << 20;
  const auto allocate_in_fragments = [](Arena& arena) {
    std::vector<void*> blocks;
    for (size_t i = 0; i < 16; ++i) blocks.push_back(arena.allocate(kMemory / 16));
    for (size_t i = 0; i < 16; ++i) {
      if (i % 4 != 3) arena.deallocate(blocks[i]);
    }
    arena.allocate(kMemory / 16 * 5);  // of 12 that are free
  };
  Arena tight(kMemory);
  EXPECT_THAT([&] { allocate_in_fragments(tight); },
              ThrowsMessage<Error>(HasSubstr("no free run of addresses")));
  Arena arena(arena_span_bytes(kMemory, 2, {}));
  allocate_in_fragments(arena);
}

TEST(ArenaSpan, FitsIntoTheAddressesOfAProcessOnEveryHost) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  constexpr uint64_t kAddresses = uint64_t{1} << 47;
  for (const uint64_t memory : {1 * kGiB, 23 * kGiB, 768 * kGiB, 24576 * kGiB}) {
    for (const int ranks : {1, 2, 8, 64, 192, 1024}) {
      const uint64_t span = arena_span_bytes(memory, ranks, {});
      EXPECT_LT(span * static_cast<uint64_t>(ranks), kAddresses) << memory << " " << ranks;
      EXPECT_EQ(span % Mapping::kPage, 0U);
      EXPECT_GE(span, memory / static_cast<uint64_t>(ranks)) << "an equal share of the memory at the least";
    }
  }
  EXPECT_GE(arena_span_bytes(16 * kGiB, 8, {}), 4 * 16 * kGiB) << "all of a small host, in fragments";
  EXPECT_GT(arena_span_bytes(768 * kGiB, 192, {}), 256 * kGiB);
}

TEST(ArenaSpan, KeepsTheLimitsOfTheProcess) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(arena_span_bytes(16 * kGiB, 4, {.address_space_bytes = 32 * kGiB}), 4 * kGiB);
  EXPECT_EQ(arena_span_bytes(16 * kGiB, 4, {.file_bytes = 3 * kGiB + 1}), 3 * kGiB);
  EXPECT_EQ(arena_span_bytes(16 * kGiB, 4, {.file_bytes = 1000}), size_t{64} << 20)
      << "refused when it is made";
}

TEST(Mapping, TakesFromAPeerOnlyMemoryThatCannotShrink) {
  const Mapping own = Mapping::create(1 << 20);
  EXPECT_EQ(Mapping::attach(own.descriptor(), 3).span_bytes(), size_t{1} << 20);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const launch::UniqueFd reading(ends[0]);
  const launch::UniqueFd writing(ends[1]);
  std::vector<launch::UniqueFd> memories;
  for (const int seals : {0, F_SEAL_GROW, F_SEAL_GROW | F_SEAL_SEAL}) {
    memories.emplace_back(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(memories.back().get(), 1 << 20), 0);
    ASSERT_EQ(fcntl(memories.back().get(), F_ADD_SEALS, seals), 0);
  }
  for (const int descriptor : {-1, reading.get(), memories[0].get(), memories[1].get(), memories[2].get()}) {
    EXPECT_THAT(
        [&] { Mapping::attach(descriptor, 3); },
        ThrowsMessage<PeerError>(HasSubstr("what rank 3 passed is not memory sealed against shrinking")));
  }
}

TEST(Arena, FreesALentBlockOnceNobodyUsesIt) {
  Arena arena(kSpan);
  auto* const users = new (arena.allocate(size_t{1} << 20)) std::atomic<uint32_t>(2);
  arena.deallocate_when_unused(users, *users);
  EXPECT_EQ(arena.use().used_bytes, size_t{1} << 20);
  --*users;
  EXPECT_EQ(arena.use().used_bytes, size_t{1} << 20);
  --*users;
  EXPECT_EQ(arena.use().used_bytes, 0U);
}

TEST(Arena, GivesNothingOutOnceRetired) {
  Arena arena(kSpan);
  auto* const block = static_cast<char*>(arena.allocate(size_t{4} << 20));
  block[0] = 'x';
  arena.retire();
  EXPECT_EQ(arena.allocate(10), nullptr);
  EXPECT_EQ(block[0], 'x');
  EXPECT_EQ(arena.use().held_bytes, size_t{4} << 20) << "what was free went back";
  arena.deallocate(block);
  EXPECT_EQ(arena.use().held_bytes, 0U);
}

TEST(Arena, GivesEverythingBackThatIsFreedOnceRetired) {
  Arena arena(kSpan);
  std::vector<void*> blocks;
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{5000}, size_t{1} << 20}) {
    for (int i = 0; i < 20; ++i) blocks.push_back(arena.allocate(bytes));
  }
  arena.retire();
  for (void* block : blocks) arena.deallocate(block);
  EXPECT_EQ(arena.use().used_bytes, 0U);
  EXPECT_EQ(arena.use().held_bytes, 0U);
}

TEST(Arena, ThreadsMayFreeWhatOthersAllocated) {
  Arena arena(kSpan);
  std::mutex mutex;
  std::vector<void*> shared;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      for (int i = 0; i < 2000; ++i) {
        void* const mine = arena.allocate(random() % 20'000);
        std::memset(mine, static_cast<int>(seed), 1);
        void* other = nullptr;
        {
          const std::lock_guard lock(mutex);
          shared.push_back(mine);
          std::swap(shared[random() % shared.size()], shared.back());
          if (random() % 2 == 0) {
            other = shared.back();
            shared.pop_back();
          }
        }
        if (other != nullptr) arena.deallocate(other);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (void* block : shared) arena.deallocate(block);
  EXPECT_EQ(arena.use().used_bytes, 0U);
}

/// Runs `act` in a forked child; whether it returned true there.
template <typename Act>
bool in_child(Act act) {
  const pid_t child = fork();
  if (child == 0) _exit(act() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(ProcessArena, AForkedChildGoesOnWithoutHarmToItsParent) {
  if (test::kThreadSanitizer)
    GTEST_SKIP() << "ThreadSanitizer does not bear a child that maps its memory anew";
  auto* const small = static_cast<char*>(allocate_in_process_arena(100));
  auto* const large = static_cast<char*>(allocate_in_process_arena(size_t{2} << 20));
  std::strcpy(small, "parent");
  std::strcpy(large, "parent");
  const size_t used = process_arena()->use().used_bytes;
  const size_t held = process_arena()->use().held_bytes;
  EXPECT_TRUE(in_child([&] {
    if (std::strcmp(small, "parent") != 0 || std::strcmp(large, "parent") != 0) return false;
    std::strcpy(small, "child");
    std::strcpy(large, "child");
    auto* const own = static_cast<char*>(allocate_in_process_arena(size_t{3} << 20));
    std::memset(own, 7, size_t{3} << 20);
    deallocate_in_process_arena(own);
    deallocate_in_process_arena(large);
    process_arena()->trim();
    return std::strcmp(small, "child") == 0;
  }));
  EXPECT_STREQ(small, "parent");
  EXPECT_STREQ(large, "parent");
  EXPECT_EQ(process_arena()->use().used_bytes, used);
  EXPECT_EQ(process_arena()->use().held_bytes, held);
  deallocate_in_process_arena(small);
  deallocate_in_process_arena(large);
}

TEST(ProcessArena, AGrandchildHasWhatTheChildWrote) {
  if (test::kThreadSanitizer)
    GTEST_SKIP() << "ThreadSanitizer does not bear a child that maps its memory anew";
  auto* const memory = static_cast<char*>(allocate_in_process_arena(size_t{2} << 20));
  std::strcpy(memory, "parent");
  EXPECT_TRUE(in_child([&] {
    std::strcpy(memory, "child");
    return in_child([&] { return std::strcmp(memory, "child") == 0; });
  }));
  EXPECT_STREQ(memory, "parent");
  deallocate_in_process_arena(memory);
}

TEST(ProcessArena, AForkWhileOtherThreadsAllocateLeavesAUsableChild) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int k = 0; k < 2; ++k) {
    threads.emplace_back([&] {
      while (!stop) deallocate_in_process_arena(allocate_in_process_arena(100));
    });
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(in_child([] {
      alarm(60);  // a lock that nobody releases
      deallocate_in_process_arena(allocate_in_process_arena(100));
      return true;
    }));
  }
  stop = true;
  for (auto& thread : threads) thread.join();
}

TEST(ProcessArena, AfterRetirementMemoryComesFromAnother) {
  const auto first = process_arena();
  void* const old = allocate_in_process_arena(1000);
  first->retire();
  void* const fresh = allocate_in_process_arena(1000);
  EXPECT_TRUE(first->contains(old, 1000));
  EXPECT_FALSE(first->contains(fresh, 1000));
  EXPECT_NE(process_arena(), first);
  deallocate_in_process_arena(old);
  deallocate_in_process_arena(fresh);
  EXPECT_EQ(first->use().used_bytes, 0U);
  int elsewhere = 0;
  EXPECT_THROW(deallocate_in_process_arena(&elsewhere), Error);
}

}  // namespace
}  // namespace lockstep::transport
