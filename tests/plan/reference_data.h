#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <vector>

#include "lockstep/plan/plan.h"

namespace lockstep::plan::reference {

/// A slot's elements.
template <typename Value>
using Buffer = std::vector<Value>;
/// All slots of a rank.
template <typename Value>
using Memory = std::vector<Buffer<Value>>;

inline uint64_t mixed(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t value = a * 0x9e3779b97f4a7c15 + b * 0xc2b2ae3d27d4eb4f + c * 0x165667b19e3779f9 + 1;
  for (int i = 0; i < 2; ++i) value = (value ^ (value >> 29)) * 0xbf58476d1ce4e5b9;
  return value ^ (value >> 32);
}

/// A number whose sums differ by the order of adding and by the side of each operand.
struct Term {
  uint64_t bits = 0;
  static Term of(uint64_t bits) { return {bits}; }
  friend Term operator+(Term left, Term right) { return {mixed(left.bits, right.bits, 3)}; }
  bool operator==(const Term&) const = default;
};

/// What ranks bring and what they must get.
template <typename Value>
class Data {
 public:
  Data(const Plan& plan, Count count) : plan_(plan), count_(count) {}

  Count elements(int chunk) const { return chunk_elements(plan_, count_, chunk, 1); }

  /// Integers add exactly, modulo 2^64.
  static Value value(uint64_t a, uint64_t b, uint64_t c) {
    if constexpr (kExact) {
      return mixed(a, b, c);
    } else {
      return Value::of(mixed(a, b, c));
    }
  }

  Buffer<Value> contribution(int rank, int chunk) const {
    Buffer<Value> buffer;
    for (Count i = 0; i < elements(chunk); ++i) {
      buffer.push_back(
          value(static_cast<uint64_t>(rank) + 1, static_cast<uint64_t>(chunk), static_cast<uint64_t>(i)));
    }
    return buffer;
  }

  /// A rank's memory before it takes part: nothing that may be used.
  Memory<Value> noise(int rank) const {
    Memory<Value> memory(static_cast<size_t>(plan_.slots));
    for (size_t slot = 0; slot < memory.size(); ++slot) {
      for (Count i = 0; i < elements(0); ++i) {
        memory[slot].push_back(value(1000 + static_cast<uint64_t>(rank), slot, static_cast<uint64_t>(i)));
      }
    }
    return memory;
  }

  /// A rank's memory when it begins: what it brings, and noise elsewhere.
  Memory<Value> initial(int rank) const {
    auto memory = noise(rank);
    const auto give = [&](int slot, int chunk) {
      const auto brought = contribution(rank, chunk);
      std::copy(brought.begin(), brought.end(), memory[static_cast<size_t>(slot)].begin());
    };
    switch (plan_.collective) {
      case Collective::kBroadcast:
      case Collective::kScatter:
        if (rank != plan_.root) break;
        [[fallthrough]];
      case Collective::kAllReduce:
      case Collective::kReduce:
      case Collective::kReduceScatter:
      case Collective::kBarrier:
        for (int chunk = 0; chunk < plan_.chunks; ++chunk) give(chunk, chunk);
        break;
      case Collective::kGather:
      case Collective::kAllGather:
        give(rank, rank);
        break;
      case Collective::kAllToAll:
        for (int to = 0; to < plan_.world; ++to) give(to, rank * plan_.world + to);
        break;
    }
    return memory;
  }

  /// What is wrong with the memories that ranks ended with; "" if nothing.
  std::string compare(const std::vector<Memory<Value>>& results) const {
    for (int rank = 0; rank < plan_.world; ++rank) {
      const auto& memory = results[static_cast<size_t>(rank)];
      for (const auto& [slot, chunk, from] : promised(rank)) {
        const auto expected = from ? contribution(*from, chunk) : sum(chunk, results);
        const auto& found = memory[static_cast<size_t>(slot)];
        for (size_t i = 0; i < expected.size(); ++i) {
          if (found[i] == expected[i]) continue;
          return fmt::format("rank {} slot {} element {} is wrong", rank, slot, i);
        }
      }
    }
    return "";
  }

 private:
  static constexpr bool kExact = std::is_same_v<Value, uint64_t>;
  struct Promise {
    int slot;
    int chunk;
    std::optional<int> from;  ///< Whose contribution; the sum of all if nobody's.
  };

  std::vector<Promise> promised(int rank) const {
    const bool is_root = rank == plan_.root;
    std::vector<Promise> all;
    const auto every_chunk = [&](auto from_of) {
      for (int chunk = 0; chunk < plan_.chunks; ++chunk) all.push_back({chunk, chunk, from_of(chunk)});
    };
    const auto nobody = [](int) { return std::optional<int>(); };
    switch (plan_.collective) {
      case Collective::kBarrier:
        break;
      case Collective::kReduce:
        if (is_root) every_chunk(nobody);
        break;
      case Collective::kAllReduce:
        every_chunk(nobody);
        break;
      case Collective::kReduceScatter:
        all.push_back({rank, rank, std::nullopt});
        break;
      case Collective::kBroadcast:
        every_chunk([&](int) { return std::optional(plan_.root); });
        break;
      case Collective::kScatter:
        all.push_back({rank, rank, plan_.root});
        break;
      case Collective::kGather:
        if (!is_root) break;
        [[fallthrough]];
      case Collective::kAllGather:
        every_chunk([](int chunk) { return std::optional(chunk); });
        break;
      case Collective::kAllToAll:
        for (int from = 0; from < plan_.world; ++from) {
          all.push_back({plan_.world + from, from * plan_.world + rank, from});
        }
        break;
    }
    return all;
  }

  /// Where the order is not told, it is what the first rank that has the sum has.
  Buffer<Value> sum(int chunk, const std::vector<Memory<Value>>& results) const {
    const bool told = plan_.order == Order::kRank || plan_.order == Order::kNode;
    if (!kExact && !told) {
      const int first = plan_.collective == Collective::kReduceScatter ? chunk
                        : plan_.collective == Collective::kReduce      ? plan_.root
                                                                       : 0;
      auto buffer = results[static_cast<size_t>(first)][static_cast<size_t>(chunk)];
      buffer.resize(static_cast<size_t>(elements(chunk)));
      return buffer;
    }
    const int per_node = plan_.order == Order::kNode ? plan_.ranks_per_node : plan_.world;
    Buffer<Value> total;
    for (int first = 0; first < plan_.world; first += per_node) {
      auto node = contribution(first, chunk);
      for (int rank = first + 1; rank < std::min(first + per_node, plan_.world); ++rank)
        add(node, contribution(rank, chunk));
      if (first == 0) {
        total = node;
      } else {
        add(total, node);
      }
    }
    return total;
  }

  static void add(Buffer<Value>& sum, const Buffer<Value>& other) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + other[i];
  }

  const Plan& plan_;
  const Count count_;
};

}  // namespace lockstep::plan::reference
