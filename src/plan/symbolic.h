#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/plan/verify.h"
#include "plan/content.h"
#include "plan/huge_pages.h"
#include "plan/meter.h"
#include "plan/races.h"

namespace lockstep::plan {

/// The visitor that runs a plan on symbols: what each slot holds, who knows what, and what was moved. Notes
/// the first problem and goes on.
class Symbolic {
 public:
  /// What only some plans' messages carry.
  struct Cargo {
    std::vector<Content> contents;  ///< For buffered sends, whose slots may change before they are received.
    Races::Clock clock;             ///< For one-sided plans.
    std::vector<bool> heard;        ///< For barriers: whom the sender had heard of.
  };
  struct Message {
    int from;
    int64_t index;  ///< The send's.
    Slots slots;
    int chunk;
    int depth;
    std::unique_ptr<Cargo> cargo;
  };

  Symbolic(const Plan& plan, const VerifyOptions& options, Sends sends, bool one_sided);

  void local(int rank, int64_t index, const Step& step);
  Message send(int rank, int64_t index, const Step& step);
  void receive(int rank, int64_t index, const Step& step, Message message);
  void end_round(int rank, int round);

  /// The first problem, or "".
  const std::string& problem() const { return problem_; }
  /// Compares what every rank holds with what the collective promises; "" if it is that.
  std::string compare_with_promise();
  Traffic traffic() const { return meter_.traffic(); }
  bool exact() const { return exact_; }

 private:
  struct Receipt {
    int64_t index;
    int peer;
    Kind kind;
    Slots slots;
    size_t begin;  ///< Of its contents in `received`.
    std::unique_ptr<Cargo> cargo;
  };
  struct Rank {
    std::vector<Receipt> receipts = {};  ///< Of the round that is under way.
    std::vector<Content> received = {};
    std::vector<Races::Clock> told = {};  ///< By each raising of its flag.
    std::vector<int> told_depth = {};
    std::vector<std::vector<bool>> told_heard = {};  ///< Barriers only.
  };

  Content& at(int rank, int slot) {
    return contents_[static_cast<size_t>(rank) * static_cast<size_t>(plan_.slots) +
                     static_cast<size_t>(slot)];
  }
  Rank& rank_at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  void fill();
  void refuse(int rank, int64_t index, const std::string& reason);
  void expect_chunk(int rank, int64_t index, const Content& content, int owner, int slot, int chunk);
  void combine(int rank, int64_t index, const Step& step);
  void load(int rank, int64_t index, int owner, int slot);
  void store(int rank, int64_t index, int owner, int slot);
  /// Takes over what a message told. At the end of the round: its sends did not know of it, nor did receives
  /// before it.
  void learn(int rank, const Receipt& receipt);
  void hear(int rank, const std::vector<bool>& heard);
  /// Whether the message is sent for any count above 0; longer chunks come first. Only such messages order
  /// anything.
  bool is_always_sent(const Step& step) const;
  void add(int rank, const Receipt& receipt, Content& own, const Content& other);
  std::string compare(int rank, int slot, Content expected, bool is_sum);
  Content sum_of_all(int chunk) const;
  uint64_t declared_expression() const;
  bool unites() const { return plan_.collective == Collective::kBarrier; }

  const Plan& plan_;
  const bool buffered_;
  const bool exact_;
  std::vector<Content, HugePages<Content>> contents_;  ///< Of all slots of all ranks.
  std::vector<Rank> ranks_;
  std::vector<std::vector<bool>> heard_;  ///< Barriers only: by rank, whom it has heard of.
  std::vector<uint64_t>
      expressions_;               ///< By chunk: how the first rank looked at has added it; 0 for not yet.
  std::unique_ptr<Races> races_;  ///< Only for one-sided plans.
  Meter meter_;
  std::string problem_;
};

}  // namespace lockstep::plan
