#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::plan {

/// Adds up bytes per link (from one rank to another). A rank with few partners keeps a short list; one with
/// many, a row.
class Links {
 public:
  explicit Links(int world) : world_(world), senders_(static_cast<size_t>(world)) {}

  void add(int from, int to, int64_t bytes) {
    Sender& sender = senders_[static_cast<size_t>(from)];
    if (!sender.row.empty()) {
      sender.row[static_cast<size_t>(to)] += bytes;
      return;
    }
    for (auto& [partner, sum] : sender.few) {
      if (partner == to) {
        sum += bytes;
        return;
      }
    }
    sender.few.emplace_back(to, bytes);
    if (sender.few.size() <= kFew) return;
    sender.row.assign(static_cast<size_t>(world_), 0);
    for (const auto& [partner, sum] : sender.few) sender.row[static_cast<size_t>(partner)] = sum;
    sender.few = {};
  }

  int64_t most() const {
    int64_t most = 0;
    for (const auto& sender : senders_) {
      for (const auto& [partner, sum] : sender.few) most = sum > most ? sum : most;
      for (const int64_t sum : sender.row) most = sum > most ? sum : most;
    }
    return most;
  }

 private:
  static constexpr size_t kFew = 40;
  struct Sender {
    std::vector<std::pair<int, int64_t>> few = {};
    std::vector<int64_t> row = {};
  };
  int world_;
  std::vector<Sender> senders_;
};

}  // namespace lockstep::plan
