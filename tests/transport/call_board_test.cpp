#include "transport/call_board.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <thread>
#include <vector>

namespace lockstep::transport {
namespace {

using Bytes = std::vector<std::byte>;

/// Messages between ranks of one thread; a message from rank 1 may be forged on its way.
class WireInMemory {
 public:
  std::function<void(Bytes&)> forge = [](Bytes&) {};

  class End : public Wire {
   public:
    End(WireInMemory& all, int rank) : all_(all), rank_(rank) {}
    bool moves_in_calls_only() const override { return true; }
    std::unique_ptr<Post> send(int to, uint64_t /*channel*/, const void* data, size_t bytes) override {
      const auto* const begin = static_cast<const std::byte*>(data);
      Bytes message(begin, begin + bytes);
      if (rank_ == 1) all_.forge(message);
      all_.sent_[{rank_, to}].push_back(std::move(message));
      return std::make_unique<Done>();
    }
    std::unique_ptr<Post> receive(int from, uint64_t /*channel*/, void* data, size_t bytes) override {
      return std::make_unique<Coming>(all_.sent_[{from, rank_}], data, bytes);
    }

   private:
    struct Done : Post {
      bool wait_for(std::chrono::nanoseconds /*patience*/) override { return true; }
      size_t moved() const override { return 1; }
    };
    struct Coming : Post {
      Coming(std::deque<Bytes>& in_queue, void* to, size_t size) : queue(in_queue), data(to), bytes(size) {}
      bool wait_for(std::chrono::nanoseconds /*patience*/) override {
        if (!is_over && !queue.empty()) {
          EXPECT_EQ(queue.front().size(), bytes);
          std::memcpy(data, queue.front().data(), bytes);
          queue.pop_front();
          is_over = true;
        }
        return is_over;
      }
      size_t moved() const override { return is_over ? 1 : 0; }
      std::deque<Bytes>& queue;
      void* const data;
      const size_t bytes;
      bool is_over = false;
    };
    WireInMemory& all_;
    const int rank_;
  };

 private:
  std::map<std::pair<int, int>, std::deque<Bytes>> sent_;
};

/// What rank 0 learns when rank 1 answers that nothing has moved there for `idle_ms`.
CallBoard::Time moved_at_peer(int64_t idle_ms) {
  WireInMemory wire;
  WireInMemory::End ends[] = {{wire, 0}, {wire, 1}};
  CallBoard asker(ends[0], 0, {0, 1}, 7), answerer(ends[1], 1, {0, 1}, 7);
  wire.forge = [&](Bytes& note) { std::memcpy(note.data() + sizeof(Header), &idle_ms, sizeof idle_ms); };
  const Header header = {.call = 1};
  const auto begin = std::chrono::steady_clock::now();
  asker.look(header, 1, begin);
  answerer.look(header, 0, begin);
  return asker.look(header, 1, begin);
}

TEST(CallBoard, TakesWhatAPeerSaysOfItsIdleTime) {
  const auto moved = moved_at_peer(5000);
  const auto idle = std::chrono::steady_clock::now() - moved;  // read last: a moment has passed since then
  EXPECT_GE(idle, std::chrono::milliseconds(5000));
  EXPECT_LT(idle, std::chrono::seconds(60));
}

TEST(CallBoard, BelievesNoIdleTimeThatOverflows) {
  // Milliseconds whose nanoseconds wrap around to some seconds in the future, and the extremes.
  for (const int64_t idle_ms : {int64_t{18'446'744'070'000}, INT64_MAX, INT64_MIN, int64_t{-1}}) {
    const auto moved = moved_at_peer(idle_ms);
    EXPECT_LE(moved, std::chrono::steady_clock::now()) << idle_ms;
  }
}

}  // namespace
}  // namespace lockstep::transport
