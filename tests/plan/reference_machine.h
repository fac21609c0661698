#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/reference_data.h"

namespace lockstep::plan::reference {

/// Runs all ranks of a plan, one small doing at a time, in an order that the seed decides. The plan must be
/// well formed.
template <typename Value>
class Machine {
 public:
  Machine(const Plan& plan, const Data<Value>& data, uint64_t seed)
      : plan_(plan), data_(data), random_(seed), results_(static_cast<size_t>(plan.world)) {
    buffered_ = plan.sends == Sends::kBuffered || coin();
    early_ = coin();
    policy_ = static_cast<int>(seed % 3);
    for (int rank = 0; rank < plan.world; ++rank) {
      ranks_.push_back({.memory = data.noise(rank), .steps = plan.steps(rank)});
      order_.push_back(rank);
    }
    std::shuffle(order_.begin(), order_.end(), random_);
    std::swap(order_.back(),
              *std::find(order_.begin(), order_.end(), static_cast<int>(seed / 3) % plan.world));
  }

  /// Returns what went wrong on the way, or "".
  std::string run() {
    for (;;) {
      if (policy_ == 0 || (policy_ == 1 && random_() % 16 == 0))
        std::shuffle(order_.begin(), order_.end(), random_);
      // With policy 2 the last of the order does something only when nobody else can.
      const bool moved = std::any_of(order_.begin(), order_.end(), [&](int rank) { return go_on(rank); });
      if (!fault_.empty()) return fault_;
      if (!moved) break;
    }
    for (int rank = 0; rank < plan_.world; ++rank) {
      if (!at(rank).left) return fmt::format("rank {} hangs", rank);
    }
    for (const auto& [channel, messages] : channels_) {
      if (!messages.empty()) return fmt::format("a message to rank {} is lost", channel.second);
    }
    return "";
  }

  const std::vector<Memory<Value>>& results() const { return results_; }

 private:
  using Message = std::vector<Buffer<Value>>;  ///< A piece per slot.

  struct Rank {
    Memory<Value> memory;
    std::vector<Step> steps;
    size_t next = 0;  ///< Local steps: the next one. In messages: the first step behind the round.
    std::deque<Step> sends = {}, receives = {};
    std::deque<Message> early = {};                   ///< What the sends of the round read at its start.
    std::vector<std::pair<Step, Message>> late = {};  ///< What the round has received and not yet stored.
    int loaded = 0, stored = 0;                       ///< Places of the combine under way.
    Message sum = {};
    int posts = 0;
    bool in_messages = false, entered = false, left = false;
  };

  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  bool coin() { return random_() % 2 == 0; }

  /// One doing of a rank; false if there is none that it can do.
  bool go_on(int rank) {
    Rank& self = at(rank);
    if (self.left) return false;
    if (!self.entered) {
      self.memory = data_.initial(rank);  // whatever others may have stored there before
      return self.entered = true;
    }
    if (self.in_messages) return message(rank, self);
    if (self.next == self.steps.size()) return leave(rank, self);
    const Step& step = self.steps[self.next];
    if (!step.is_local()) return start_messages(self);
    if (step.kind == Kind::kWait && at(step.peer).posts < step.flag) return false;
    if (step.kind == Kind::kCombine && !combine(self, step)) return true;
    if (step.kind == Kind::kPost) ++self.posts;
    if (step.kind == Kind::kCopy)
      store(self, step.slots, read(self, {step.from, step.slots.count}, step.chunk));
    ++self.next;
    return true;
  }

  bool leave(int rank, Rank& self) {
    self.left = true;
    results_[static_cast<size_t>(rank)] = self.memory;
    // Scratch is the engine's, which keeps it a while.
    const size_t own = std::min(self.memory.size(), static_cast<size_t>(plan_.chunks));
    for (auto& slot : std::span(self.memory).first(own)) {
      for (auto& element : slot) element = Data<Value>::value(random_(), 7, 7);
    }
    const bool barrier = plan_.collective == Collective::kBarrier;
    for (const auto& other : ranks_) {
      if (barrier && !other.entered) fault_ = fmt::format("rank {} leaves too early", rank);
    }
    return true;
  }

  /// One load or store; true when all are done.
  bool combine(Rank& self, const Step& step) {
    if (self.loaded < step.sources.count) {
      const int k = self.loaded++;
      const Message term =
          read(at(step.sources.rank_of(k)), {step.sources.slot_of(k), step.width}, step.chunk);
      if (k == 0) {
        self.sum = term;
        return false;
      }
      for (size_t piece = 0; piece < term.size(); ++piece) add(self.sum[piece], term[piece]);
      return false;
    }
    const int k = self.stored++;
    store(at(step.destinations.rank_of(k)), {step.destinations.slot_of(k), step.width}, self.sum);
    if (self.stored < step.destinations.count) return false;
    self.loaded = self.stored = 0;
    return true;
  }

  static void add(Buffer<Value>& sum, const Buffer<Value>& term) {
    for (size_t i = 0; i < term.size(); ++i) sum[i] = sum[i] + term[i];
  }

  Message read(const Rank& from, Slots slots, int chunk) const {
    Message message;
    for (int k = 0; k < slots.count; ++k) {
      const auto& slot = from.memory[static_cast<size_t>(slots.first + k)];
      message.emplace_back(slot.begin(), slot.begin() + data_.elements(chunk + k));
    }
    return message;
  }

  static void store(Rank& to, Slots slots, const Message& message) {
    for (int k = 0; k < slots.count; ++k) {
      const auto& piece = message[static_cast<size_t>(k)];
      std::copy(piece.begin(), piece.end(), to.memory[static_cast<size_t>(slots.first + k)].begin());
    }
  }

  /// Of a receive: adds what came on the side that the ranks' numbers decide.
  void store_received(int rank, Rank& self, const Step& step, Message message) {
    for (size_t k = 0; step.kind == Kind::kRecvReduce && k < message.size(); ++k) {
      auto& piece = message[k];
      const auto& own = self.memory[static_cast<size_t>(step.slots.first) + k];
      for (size_t i = 0; i < piece.size(); ++i)
        piece[i] = step.peer < rank ? piece[i] + own[i] : own[i] + piece[i];
    }
    store(self, step.slots, message);
  }

  /// A message of no elements is not sent; a barrier's is, unless it has no slots.
  bool is_sent(const Step& step) const {
    Count elements = 0;
    for (int k = 0; k < step.slots.count; ++k) elements += data_.elements(step.chunk + k);
    return elements > 0 || (plan_.collective == Collective::kBarrier && step.slots.count > 0);
  }

  bool start_messages(Rank& self) {
    const int round = self.steps[self.next].round;
    for (; self.next < self.steps.size() && self.steps[self.next].round == round; ++self.next) {
      const Step& step = self.steps[self.next];
      if (!is_sent(step)) continue;
      (step.is_send() ? self.sends : self.receives).push_back(step);
      if (step.is_send() && early_) self.early.push_back(read(self, step.slots, step.chunk));
    }
    self.in_messages = true;
    return true;
  }

  bool message(int rank, Rank& self) {
    const bool send_first = coin();
    if (send_first && send(rank, self)) return true;
    if (receive(rank, self)) return true;
    if (!send_first && send(rank, self)) return true;
    if (!self.sends.empty() || !self.receives.empty()) return false;
    for (auto& [step, message] : self.late) store_received(rank, self, step, std::move(message));
    self.late.clear();
    self.in_messages = false;
    return true;
  }

  bool send(int rank, Rank& self) {
    if (self.sends.empty()) return false;
    const Step step = self.sends.front();
    Rank& peer = at(step.peer);
    if (!buffered_) {
      if (!peer.in_messages || peer.receives.empty() || peer.receives.front().peer != rank) return false;
    }
    Message message = early_ ? self.early.front() : read(self, step.slots, step.chunk);
    if (early_) self.early.pop_front();
    self.sends.pop_front();
    if (buffered_) {
      channels_[{rank, step.peer}].push_back(std::move(message));
    } else {
      take(step.peer, peer, std::move(message));
    }
    return true;
  }

  bool receive(int rank, Rank& self) {
    if (!buffered_ || self.receives.empty()) return false;
    auto& channel = channels_[{self.receives.front().peer, rank}];
    if (channel.empty()) return false;
    Message message = std::move(channel.front());
    channel.pop_front();
    take(rank, self, std::move(message));
    return true;
  }

  void take(int rank, Rank& self, Message message) {
    const Step step = self.receives.front();
    self.receives.pop_front();
    bool fits = message.size() == static_cast<size_t>(step.slots.count);
    for (size_t k = 0; fits && k < message.size(); ++k) {
      fits = static_cast<Count>(message[k].size()) == data_.elements(step.chunk + static_cast<int>(k));
    }
    if (!fits) {
      fault_ = fmt::format("rank {} receives a message of another size", rank);
    } else if (early_) {
      store_received(rank, self, step, std::move(message));
    } else {
      self.late.emplace_back(step, std::move(message));
    }
  }

  const Plan& plan_;
  const Data<Value>& data_;
  std::mt19937_64 random_;
  bool buffered_ = false;  ///< Sends complete at once.
  bool early_ = false;     ///< Sends read and receives store as early as they may, or as late.
  int policy_ = 0;
  std::vector<Rank> ranks_;
  std::vector<int> order_;  ///< Who goes first if it can.
  std::map<std::pair<int, int>, std::deque<Message>> channels_;
  std::vector<Memory<Value>> results_;
  std::string fault_;
};

}  // namespace lockstep::plan::reference
