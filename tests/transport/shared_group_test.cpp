// What a rank believes of the memory that it shares with others: nothing that it has not checked.
#include "transport/shared_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstring>

#include "lockstep/error.h"
#include "transport/ranks.h"

namespace lockstep::test {
namespace {

using ::testing::HasSubstr;
using transport::Arena;
using transport::Fifo;
using transport::Header;
using transport::SharedGroup;
using transport::Stream;

/// A message's first bytes, as they are in the fifo.
struct RawPreamble {
  Header header;
  uint64_t bytes;
  int64_t place;
};

/// Two ranks in one thread.
class SharedGroupOfTwo : public ::testing::Test {
 protected:
  static constexpr size_t kSpan = size_t{16} << 20;
  static constexpr size_t kLarge = size_t{64} << 10;  ///< The receiver copies it from the sender's arena.

  SharedGroupOfTwo() {
    std::vector<SharedGroup::Member> members;
    for (int rank = 0; rank < 2; ++rank) {
      Arena& arena = *arenas.emplace_back(std::make_unique<Arena>(kSpan));
      blocks.push_back(static_cast<std::byte*>(arena.allocate(SharedGroup::block_bytes(2))));
      SharedGroup::prepare(blocks.back(), 2, {});
      members.push_back({arena.mapping().base(), kSpan, arena.offset_of(blocks.back())});
    }
    for (int rank = 0; rank < 2; ++rank) groups.push_back(join(rank, members));
    source = static_cast<std::byte*>(arenas[0]->allocate(kLarge));
    std::memset(source, 7, kLarge);
    destination.resize(kLarge);
  }

  std::unique_ptr<SharedGroup> join(int rank, const std::vector<SharedGroup::Member>& members) {
    return std::make_unique<SharedGroup>(rank, members, *arenas[static_cast<size_t>(rank)],
                                         transport::GroupOptions{}, [](int) { return false; });
  }
  /// From rank 0 to rank 1, for messages of point to point.
  Fifo& fifo() {
    auto* const first = reinterpret_cast<Fifo*>(blocks[0] + SharedGroup::block_bytes(0));
    return first[static_cast<int>(Stream::kPointToPoint) * 2 + 1];
  }
  auto send(size_t bytes) { return groups[0]->send(Stream::kPointToPoint, 1, header, source, bytes); }
  auto receive(size_t bytes) {
    return groups[1]->receive(Stream::kPointToPoint, 0, header, destination.data(), bytes);
  }
  std::string error_of(const std::function<void()>& act) { return text_of<PeerError>(act); }

  std::vector<std::unique_ptr<Arena>> arenas;
  std::vector<std::byte*> blocks;
  std::vector<std::unique_ptr<SharedGroup>> groups;
  std::atomic<bool> failed = false;
  const transport::Limit limit = {.timeout = std::chrono::seconds(1), .failed = &failed};
  const Header header = {.count = 3, .root = 5};
  std::byte* source;
  std::vector<std::byte> destination;
};

TEST_F(SharedGroupOfTwo, MovesMessagesBothThroughTheFifoAndByPlace) {
  for (const size_t bytes : {size_t{0}, size_t{100}, kLarge}) {
    const auto sent = send(bytes);
    receive(bytes)->wait(limit);
    sent->wait(limit);
    EXPECT_EQ(std::memcmp(source, destination.data(), bytes), 0) << bytes;
  }
}

TEST_F(SharedGroupOfTwo, AForgedLengthOrPlaceIsRefusedByName) {
  const auto span = static_cast<int64_t>(kSpan);
  const auto bytes = static_cast<int64_t>(kLarge);
  const std::vector<RawPreamble> forged = {{header, kLarge, span - bytes + 1},
                                           {header, kLarge, span - 1},
                                           {header, kLarge, span},
                                           {header, kLarge, span + 1},
                                           {header, kLarge, INT64_MAX},
                                           {header, kLarge, -2},
                                           {header, kLarge, INT64_MIN},
                                           {header, kLarge - 1, 0},
                                           {header, kLarge + 1, -1},
                                           {header, UINT64_MAX, -1}};
  for (const RawPreamble& preamble : forged) {
    new (&fifo()) Fifo;
    groups[1] = join(1, {{arenas[0]->mapping().base(), kSpan, arenas[0]->offset_of(blocks[0])},
                         {arenas[1]->mapping().base(), kSpan, arenas[1]->offset_of(blocks[1])}});
    fifo().write(reinterpret_cast<const std::byte*>(&preamble), sizeof preamble);
    EXPECT_EQ(
        error_of([&] { receive(kLarge)->wait(limit); }),
        fmt::format("rank 0 announced {} bytes at offset {} of its arena of {} bytes, expected {} bytes",
                    preamble.bytes, preamble.place, kSpan, kLarge));
  }
  const RawPreamble last = {header, kLarge, span - bytes};
  new (&fifo()) Fifo;
  fifo().write(reinterpret_cast<const std::byte*>(&last), sizeof last);
  EXPECT_EQ(error_of([&] { receive(kLarge)->test(); }), "") << "the last bytes of the arena can be sent";
}

TEST_F(SharedGroupOfTwo, ACorruptPositionOfAFifoIsAnErrorThatNamesThePeer) {
  for (const uint64_t corrupt : {uint64_t{Fifo::kBytes + 1}, UINT64_MAX - Fifo::kBytes, uint64_t{1} << 63}) {
    for (const size_t bytes : {size_t{100}, size_t{10'000}, kLarge}) {
      for (const auto position : {&Fifo::written, &Fifo::read}) {
        new (&fifo()) Fifo;
        (fifo().*position).store(corrupt);
        const auto sent = send(bytes);
        const auto received = receive(bytes);
        EXPECT_THAT(error_of([&] { sent->wait(limit); }), HasSubstr("the fifo to rank 1 is corrupt: "));
        EXPECT_THAT(error_of([&] { received->wait(limit); }), HasSubstr("the fifo from rank 0 is corrupt: "));
      }
    }
  }
}

TEST_F(SharedGroupOfTwo, ACorruptReceiptIsAnErrorThatNamesThePeer) {
  const auto sent = send(kLarge);
  EXPECT_FALSE(sent->test());
  fifo().read.store(fifo().written.load() + 1);
  EXPECT_THAT(error_of([&] { sent->wait(limit); }), HasSubstr("the fifo to rank 1 is corrupt: "));
}

/// What happens when a store hits the page that is not there yet.
std::byte* g_page = nullptr;
SharedGroup* g_sender = nullptr;

TEST_F(SharedGroupOfTwo, ASenderThatWithdrawsInMidCopyIsNoticed) {
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = [](int) {
    g_sender->withdraw();
    mprotect(g_page, kLarge, PROT_READ | PROT_WRITE);
  };
  g_sender = groups[0].get();
  g_page = static_cast<std::byte*>(mmap(nullptr, kLarge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const auto sent = send(kLarge);
  sigaction(SIGSEGV, &action, &before);
  const auto received = groups[1]->receive(Stream::kPointToPoint, 0, header, g_page, kLarge);
  sigaction(SIGSEGV, &before, nullptr);
  EXPECT_EQ(g_page[kLarge - 1], std::byte{7}) << "it was copied";
  EXPECT_EQ(error_of([&] { received->wait(limit); }), "rank 0 gave up while its message was read");
  munmap(g_page, kLarge);
}

TEST_F(SharedGroupOfTwo, ACorruptFlagIsAnErrorThatNamesThePeer) {
  const auto run = [&] {
    for (const auto& group : groups) {
      group->begin(header, limit);
      group->post();
    }
  };
  run();
  for (int rank = 0; rank < 2; ++rank) groups[static_cast<size_t>(rank)]->wait(1 - rank, 1, limit);
  run();
  auto& flag = *reinterpret_cast<transport::Signal*>(blocks[0]);  // of even runs
  ASSERT_EQ(flag.value.load(), 2U * 4 + 1);
  for (const uint32_t corrupt : {2U * 4 + 4, 2U * 4 + 1000, 2U * 4 + (1U << 30)}) {
    flag.value = corrupt;
    EXPECT_EQ(
        error_of([&] { groups[1]->wait(0, 1, limit); }),
        fmt::format("the flag of rank 0 is {}, expected 8 to 11; hint: a rank wrote past the end of a buffer",
                    corrupt));
  }
  flag.value = 2U * 4 + 3;
  groups[1]->wait(0, 1, limit);
}

TEST_F(SharedGroupOfTwo, DataThatReachesPastTheArenaIsRefusedByName) {
  const std::byte* const end = arenas[0]->mapping().base() + kSpan;
  for (const size_t within : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}}) {
    groups[0]->begin(header, limit);
    groups[1]->begin(header, limit);
    groups[0]->share(end - within);
    groups[0]->post();
    groups[1]->post();
    groups[0]->wait(1, 1, limit);
    groups[1]->wait(0, 1, limit);
    const std::string text = error_of([&] { EXPECT_EQ(groups[1]->data_of(0, 4096), end - 4096); });
    EXPECT_EQ(text, within == 4096
                        ? ""
                        : fmt::format("shared memory: 4096 bytes at offset {} of rank 0's arena of {} "
                                      "bytes",
                                      kSpan - within, kSpan));
  }
}

TEST_F(SharedGroupOfTwo, ABlockOutsideOfItsArenaIsRefusedByName) {
  for (const size_t offset : {size_t{64}, kSpan, kSpan - 4096, SIZE_MAX}) {
    EXPECT_THAT(error_of([&] {
                  join(0, {{arenas[0]->mapping().base(), kSpan, arenas[0]->offset_of(blocks[0])},
                           {arenas[1]->mapping().base(), kSpan, offset}});
                }),
                HasSubstr(fmt::format("rank 1 announced its block of {} bytes at offset {}",
                                      SharedGroup::block_bytes(2), offset)));
  }
}

}  // namespace
}  // namespace lockstep::test
