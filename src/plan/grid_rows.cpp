#include <map>
#include <optional>
#include <utility>

#include "lockstep/plan/grid.h"

namespace lockstep::plan {

namespace {

/// A round of a rank.
struct Round {
  int rank;
  int number;
};

/// Which rounds must not lie above which.
class Layout {
 public:
  explicit Layout(const Plan& plan) {
    std::map<std::pair<int, int>, std::vector<int>> sent, received;  // by (from, to): the round of each
    std::vector<std::vector<int>> posted(static_cast<size_t>(plan.world));
    std::vector<std::pair<Step, int>> waits;
    for (int rank = 0; rank < plan.world; ++rank) {
      first_.push_back(rounds_.size());
      for (Cursor cursor(plan, rank); !cursor.done(); cursor.advance()) {
        const Step& step = cursor.step();
        const bool starts = rounds_.size() == first_.back() || rounds_.back().number != step.round;
        if (starts) rounds_.push_back({rank, step.round});
        const int round = static_cast<int>(rounds_.size()) - 1;
        if (step.is_send()) sent[{rank, step.peer}].push_back(round);
        if (step.is_receive()) received[{step.peer, rank}].push_back(round);
        if (step.kind == Kind::kPost) posted[static_cast<size_t>(rank)].push_back(round);
        if (step.kind == Kind::kWait) waits.emplace_back(step, round);
      }
    }
    for (const auto& [channel, rounds] : sent) {
      const auto& ends = received[channel];
      for (size_t i = 0; i < rounds.size() && i < ends.size(); ++i)
        messages_.emplace_back(rounds[i], ends[i]);
    }
    for (const auto& [step, round] : waits) {
      if (step.peer < 0 || step.peer >= plan.world) continue;
      const auto& posts = posted[static_cast<size_t>(step.peer)];
      const auto which = static_cast<size_t>(step.flag) - 1;
      if (step.flag >= 1 && which < posts.size()) flags_.emplace_back(posts[which], round);
    }
  }

  /// The least rows that keep a rank's rounds below each other and a receive not above its send; with `level`
  /// also a send not above its receive. Nothing if there are none.
  std::optional<std::vector<int>> rows(bool level) const {
    std::vector<int> rows(rounds_.size(), 0);
    const int most = static_cast<int>(rounds_.size());
    for (bool moved = true; moved;) {
      moved = false;
      const auto below = [&](int upper, int lower, int by) {
        const int least = rows[static_cast<size_t>(upper)] + by;
        if (rows[static_cast<size_t>(lower)] >= least) return true;
        rows[static_cast<size_t>(lower)] = least;
        moved = true;
        return least < most;
      };
      bool fits = true;
      for (int i = 1; i < most; ++i) {
        if (rounds_[static_cast<size_t>(i)].rank == rounds_[static_cast<size_t>(i - 1)].rank)
          fits &= below(i - 1, i, 1);
      }
      for (const auto& [from, to] : messages_) {
        fits &= below(from, to, 0);
        if (level) fits &= below(to, from, 0);
      }
      for (const auto& [post, wait] : flags_) fits &= below(post, wait, 0);
      if (!fits) return std::nullopt;
    }
    return rows;
  }

  /// The rows that the rounds' own numbers give, for plans that no order fits.
  std::vector<int> numbers() const {
    std::vector<int> rows;
    for (const auto& round : rounds_) rows.push_back(round.number);
    return rows;
  }

  size_t first(int rank) const { return first_[static_cast<size_t>(rank)]; }
  const Round& round(size_t index) const { return rounds_[index]; }

 private:
  std::vector<Round> rounds_;                  ///< Of all ranks, in order.
  std::vector<size_t> first_;                  ///< By rank: its first round.
  std::vector<std::pair<int, int>> messages_;  ///< Rounds of send and receive.
  std::vector<std::pair<int, int>> flags_;     ///< Rounds of post and wait.
};

}  // namespace

std::vector<std::vector<int>> grid_rows(const Plan& plan) {
  const Layout layout(plan);
  auto of_rounds = layout.rows(/*level=*/true);
  if (!of_rounds) of_rounds = layout.rows(/*level=*/false);
  if (!of_rounds) of_rounds = layout.numbers();
  std::vector<std::vector<int>> rows;
  for (int rank = 0; rank < plan.world; ++rank) {
    rows.emplace_back();
    size_t round = layout.first(rank);
    for (Cursor cursor(plan, rank); !cursor.done(); cursor.advance()) {
      if (cursor.step().round != layout.round(round).number) ++round;
      rows.back().push_back((*of_rounds)[round]);
    }
  }
  return rows;
}

}  // namespace lockstep::plan
