#include "plan/symbolic.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/plan/text.h"

namespace lockstep::plan {

namespace {

constexpr int kMostExact = 64;

std::string held(const Content& content) {
  if (content.chunk < 0) return "nothing yet";
  return fmt::format("chunk {} with {} contributions", content.chunk, content.count);
}

}  // namespace

Symbolic::Symbolic(const Plan& plan, const VerifyOptions& options, Sends sends, bool one_sided)
    : plan_(plan),
      buffered_(sends == Sends::kBuffered),
      exact_(plan.world <= kMostExact),
      contents_(static_cast<size_t>(plan.world) * static_cast<size_t>(plan.slots)),
      ranks_(static_cast<size_t>(plan.world)),
      expressions_(static_cast<size_t>(plan.chunks), 0),
      races_(one_sided ? std::make_unique<Races>(plan.world, plan.slots) : nullptr),
      meter_(plan, options.count, options.element_bytes) {
  fill();
}

void Symbolic::fill() {
  const auto give = [&](int rank, int slot, int chunk) {
    at(rank, slot) = contribution(rank, chunk, exact_);
  };
  for (int rank = 0; rank < plan_.world; ++rank) {
    switch (plan_.collective) {
      case Collective::kBarrier:
        heard_.emplace_back(static_cast<size_t>(plan_.world), false);
        heard_.back()[static_cast<size_t>(rank)] = true;
        [[fallthrough]];
      case Collective::kAllReduce:
      case Collective::kReduce:
      case Collective::kReduceScatter:
        for (int chunk = 0; chunk < plan_.chunks; ++chunk) give(rank, chunk, chunk);
        break;
      case Collective::kBroadcast:
      case Collective::kScatter:
        for (int chunk = 0; rank == plan_.root && chunk < plan_.chunks; ++chunk) give(rank, chunk, chunk);
        break;
      case Collective::kGather:
      case Collective::kAllGather:
        give(rank, rank, rank);
        break;
      case Collective::kAllToAll:
        for (int to = 0; to < plan_.world; ++to) give(rank, to, rank * plan_.world + to);
        break;
    }
  }
}

void Symbolic::refuse(int rank, int64_t index, const std::string& reason) {
  if (!problem_.empty()) return;
  problem_ = fmt::format("rank {} step {} ({}): {}", rank, index, to_string(plan_.step(rank, index)), reason);
}

void Symbolic::expect_chunk(int rank, int64_t index, const Content& content, int owner, int slot, int chunk) {
  if (content.chunk == chunk) return;
  const std::string whose = owner == rank ? "" : fmt::format(" of rank {}", owner);
  refuse(
      rank, index,
      fmt::format("reads slot {}{}, which holds {}; expected chunk {}", slot, whose, held(content), chunk));
}

void Symbolic::load(int rank, int64_t index, int owner, int slot) {
  if (!races_) return;
  if (const auto race = races_->load(rank, owner, slot); !race.empty()) refuse(rank, index, race);
}

void Symbolic::store(int rank, int64_t index, int owner, int slot) {
  if (!races_) return;
  if (const auto race = races_->store(rank, owner, slot); !race.empty()) refuse(rank, index, race);
}

void Symbolic::local(int rank, int64_t index, const Step& step) {
  Rank& self = rank_at(rank);
  switch (step.kind) {
    case Kind::kCopy:
      for (int k = 0; k < step.slots.count; ++k) {
        const Content content = at(rank, step.from + k);
        expect_chunk(rank, index, content, rank, step.from + k, step.chunk + k);
        load(rank, index, rank, step.from + k);
        store(rank, index, rank, step.slots.first + k);
        at(rank, step.slots.first + k) = content;
      }
      return;
    case Kind::kCombine:
      return combine(rank, index, step);
    case Kind::kPost:
      self.told.push_back(races_->tell(rank));
      self.told_depth.push_back(meter_.depth(rank));
      if (unites()) self.told_heard.push_back(heard_[static_cast<size_t>(rank)]);
      return;
    case Kind::kWait: {
      if (step.flag < 1) return;
      const Rank& peer = rank_at(step.peer);
      const auto which = static_cast<size_t>(step.flag - 1);
      races_->learn(rank, peer.told[which]);
      meter_.arrived(rank, peer.told_depth[which]);
      if (unites()) hear(rank, peer.told_heard[which]);
      meter_.end_round(rank);  // a wait is over when it is over
      return;
    }
    default:
      return;
  }
}

void Symbolic::combine(int rank, int64_t index, const Step& step) {
  for (int k = 0; k < step.width; ++k) {
    const int64_t bytes = meter_.bytes_of(step.chunk + k, 1);
    Content sum;
    for (int source = 0; source < step.sources.count; ++source) {
      const int owner = step.sources.rank_of(source);
      const int slot = step.sources.slot_of(source) + k;
      const Content& content = at(owner, slot);
      expect_chunk(rank, index, content, owner, slot, step.chunk + k);
      load(rank, index, owner, slot);
      if (source == 0) {
        sum = content;
      } else if (overlap(sum, content, exact_, plan_.world)) {
        refuse(rank, index, fmt::format("adds a contribution to chunk {} twice", step.chunk + k));
      } else {
        sum = added(sum, content);
      }
      if (owner != rank) meter_.one_sided(rank, owner, rank, bytes);
    }
    for (int destination = 0; destination < step.destinations.count; ++destination) {
      const int owner = step.destinations.rank_of(destination);
      const int slot = step.destinations.slot_of(destination) + k;
      store(rank, index, owner, slot);
      at(owner, slot) = sum;
      if (owner != rank) meter_.one_sided(rank, rank, owner, bytes);
    }
  }
}

Symbolic::Message Symbolic::send(int rank, int64_t index, const Step& step) {
  Message message{.from = rank,
                  .index = index,
                  .slots = step.slots,
                  .chunk = step.chunk,
                  .depth = meter_.depth(rank),
                  .cargo = nullptr};
  if (buffered_ || races_ || unites()) message.cargo = std::make_unique<Cargo>();
  for (int k = 0; k < step.slots.count; ++k) {
    const Content& content = at(rank, step.slots.first + k);
    expect_chunk(rank, index, content, rank, step.slots.first + k, step.chunk + k);
    load(rank, index, rank, step.slots.first + k);
    if (buffered_) message.cargo->contents.push_back(content);
  }
  if (races_ && is_always_sent(step)) message.cargo->clock = races_->tell(rank);
  if (unites() && is_always_sent(step)) message.cargo->heard = heard_[static_cast<size_t>(rank)];
  const int64_t bytes = meter_.bytes_of(step.chunk, step.slots.count);
  if (meter_.is_sent(step, bytes)) meter_.message(rank, step.peer, bytes);
  return message;
}

void Symbolic::receive(int rank, int64_t index, const Step& step, Message message) {
  Rank& self = rank_at(rank);
  if (message.slots.count != step.slots.count || message.chunk != step.chunk) {
    refuse(rank, index,
           fmt::format("rank {} step {} ({}) sent {} chunks from {}, expected {} from {}", message.from,
                       message.index, to_string(plan_.step(message.from, message.index)), message.slots.count,
                       message.chunk, step.slots.count, step.chunk));
    return;
  }
  if (step.slots.count > 0) meter_.arrived(rank, message.depth);
  for (int k = 0; k < step.slots.count; ++k) {
    self.received.push_back(buffered_ ? message.cargo->contents[static_cast<size_t>(k)]
                                      : at(message.from, message.slots.first + k));
  }
  const size_t begin = self.received.size() - static_cast<size_t>(step.slots.count);
  self.receipts.push_back({index, step.peer, step.kind, step.slots, begin, std::move(message.cargo)});
}

void Symbolic::add(int rank, const Receipt& receipt, Content& own, const Content& other) {
  if (own.chunk != other.chunk) {
    refuse(rank, receipt.index, fmt::format("adds chunk {} to {}", other.chunk, held(own)));
    return;
  }
  if (unites()) return;
  if (overlap(own, other, exact_, plan_.world)) {
    refuse(rank, receipt.index, fmt::format("adds a contribution to chunk {} twice", own.chunk));
    return;
  }
  own = receipt.peer < rank ? added(other, own) : added(own, other);
}

void Symbolic::learn(int rank, const Receipt& receipt) {
  if (!receipt.cargo) return;
  if (!receipt.cargo->clock.empty()) races_->learn(rank, receipt.cargo->clock);
  hear(rank, receipt.cargo->heard);
}

void Symbolic::hear(int rank, const std::vector<bool>& heard) {
  for (size_t other = 0; other < heard.size(); ++other) {
    if (heard[other]) heard_[static_cast<size_t>(rank)][other] = true;
  }
}

bool Symbolic::is_always_sent(const Step& step) const {
  if (step.slots.count == 0) return false;
  return unites() || plan_.division == Division::kEach || step.chunk == 0;
}

void Symbolic::end_round(int rank, int) {
  Rank& self = rank_at(rank);
  for (const auto& receipt : self.receipts) {
    learn(rank, receipt);
    for (int k = 0; k < receipt.slots.count; ++k) {
      const int slot = receipt.slots.first + k;
      const Content& content = self.received[receipt.begin + static_cast<size_t>(k)];
      store(rank, receipt.index, rank, slot);
      if (receipt.kind == Kind::kRecv) {
        at(rank, slot) = content;
      } else {
        add(rank, receipt, at(rank, slot), content);
      }
    }
  }
  self.receipts.clear();
  self.received.clear();
  meter_.end_round(rank);
}

Content Symbolic::sum_of_all(int chunk) const {
  Content sum = contribution(0, chunk, exact_);
  for (int rank = 1; rank < plan_.world; ++rank) sum = added(sum, contribution(rank, chunk, exact_));
  return sum;
}

uint64_t Symbolic::declared_expression() const {
  // Rank order is node order with one node.
  const int per_node = plan_.order == Order::kNode ? plan_.ranks_per_node : plan_.world;
  std::optional<uint64_t> total;
  for (int first = 0; first < plan_.world; first += per_node) {
    uint64_t node = contribution(first, 0, exact_).expression;
    for (int rank = first + 1; rank < std::min(first + per_node, plan_.world); ++rank) {
      node = sum_of(node, contribution(rank, 0, exact_).expression);
    }
    total = total ? sum_of(*total, node) : node;
  }
  return *total;
}

std::string Symbolic::compare(int rank, int slot, Content expected, bool is_sum) {
  const Content& found = at(rank, slot);
  const bool same = found.chunk == expected.chunk && found.count == expected.count &&
                    found.low == expected.low && found.high == expected.high;
  if (!same) {
    const std::string wrong_ones =
        found.chunk == expected.chunk && found.count == expected.count ? ", but not the right ones" : "";
    return fmt::format("rank {} ends with {}{} in slot {}; expected {}", rank, held(found), wrong_ones, slot,
                       held(expected));
  }
  if (!is_sum) return "";
  uint64_t& expression = expressions_[static_cast<size_t>(expected.chunk)];
  if (expression == 0) {
    const bool declared = plan_.order == Order::kRank || plan_.order == Order::kNode;
    expression = declared ? declared_expression() : found.expression;
  }
  if (found.expression == expression) return "";
  return fmt::format("rank {} has added chunk {} in another order than {}", rank, expected.chunk,
                     plan_.order == Order::kRank || plan_.order == Order::kNode
                         ? fmt::format("the declared one ({})", name(plan_.order))
                         : "the ranks before it");
}

std::string Symbolic::compare_with_promise() {
  const Content all = sum_of_all(0);
  const auto full = [&](int chunk) {
    Content content = all;
    content.chunk = chunk;
    return content;
  };
  for (int rank = 0; races_ && rank < plan_.world; ++rank) {
    if (const auto race = races_->leave(rank, plan_.chunks); !race.empty())
      return fmt::format("rank {} {}", rank, race);
  }
  for (int rank = 0; rank < plan_.world; ++rank) {
    std::string problem;
    const auto check = [&](int slot, const Content& expected, bool is_sum) {
      if (problem.empty()) problem = compare(rank, slot, expected, is_sum);
    };
    switch (plan_.collective) {
      case Collective::kBarrier: {
        const auto& heard = heard_[static_cast<size_t>(rank)];
        const auto missing = std::find(heard.begin(), heard.end(), false);
        if (missing == heard.end()) break;
        return fmt::format("rank {} leaves the barrier without having heard of rank {}", rank,
                           missing - heard.begin());
      }
      case Collective::kAllReduce:
      case Collective::kReduce:
        if (plan_.collective == Collective::kReduce && rank != plan_.root) break;
        for (int chunk = 0; chunk < plan_.chunks; ++chunk) check(chunk, full(chunk), true);
        break;
      case Collective::kReduceScatter:
        check(rank, full(rank), true);
        break;
      case Collective::kBroadcast:
        for (int chunk = 0; chunk < plan_.chunks; ++chunk)
          check(chunk, contribution(plan_.root, chunk, exact_), false);
        break;
      case Collective::kScatter:
        check(rank, contribution(plan_.root, rank, exact_), false);
        break;
      case Collective::kGather:
      case Collective::kAllGather:
        if (plan_.collective == Collective::kGather && rank != plan_.root) break;
        for (int chunk = 0; chunk < plan_.chunks; ++chunk)
          check(chunk, contribution(chunk, chunk, exact_), false);
        break;
      case Collective::kAllToAll:
        for (int from = 0; from < plan_.world; ++from) {
          check(plan_.world + from, contribution(from, from * plan_.world + rank, exact_), false);
        }
        break;
    }
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace lockstep::plan
