#include "lockstep/plan/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/plan/text.h"
#include "plan/structure.h"
#include "plan/symbolic.h"
#include "plan/walk.h"

namespace lockstep::plan {

namespace {

/// The visitor that looks for deadlocks alone.
struct NoSteps {
  struct Message {};
  void local(int, int64_t, const Step&) {}
  Message send(int, int64_t, const Step&) { return {}; }
  void receive(int, int64_t, const Step&, Message) {}
  void end_round(int, int) {}
};

bool completes(const Plan& plan, Sends sends) {
  NoSteps visitor;
  return Walk(plan, sends, visitor).run().empty();
}

std::string describe(const std::vector<Blocked>& blocked, Sends sends) {
  constexpr size_t kShown = 8;
  std::string text = fmt::format("deadlock with {} sends:", name(sends));
  for (size_t i = 0; i < std::min(blocked.size(), kShown); ++i) {
    text += fmt::format("{} rank {} waits in step {} ({})", i == 0 ? "" : ",", blocked[i].rank,
                        blocked[i].index, to_string(blocked[i].step));
  }
  if (blocked.size() > kShown) text += fmt::format(", and {} more", blocked.size() - kShown);
  return text;
}

}  // namespace

Verdict verify(const Plan& plan, const VerifyOptions& options) {
  Verdict verdict;
  const Structure structure = check_structure(plan);
  verdict.problem = structure.problem;
  if (!verdict.problem.empty()) return verdict;

  Symbolic symbolic(plan, options, plan.sends, structure.one_sided);
  Walk walk(plan, plan.sends, symbolic);
  const auto blocked = walk.run();
  verdict.exact = symbolic.exact();
  verdict.traffic = symbolic.traffic();
  verdict.problem = symbolic.problem();
  if (!blocked.empty()) {
    for (const auto& one : blocked) {
      if (verdict.blocked.empty() || verdict.blocked.back() != one.rank) verdict.blocked.push_back(one.rank);
    }
    if (verdict.problem.empty()) verdict.problem = describe(blocked, plan.sends);
  }
  if (const auto* lost = walk.unreceived(); lost != nullptr && verdict.problem.empty()) {
    verdict.problem = fmt::format("rank {} step {} ({}): is never received", lost->from, lost->index,
                                  to_string(plan.step(lost->from, lost->index)));
  }
  if (verdict.problem.empty()) verdict.problem = symbolic.compare_with_promise();
  verdict.ok = verdict.problem.empty();
  verdict.rendezvous =
      verdict.ok && (plan.sends == Sends::kRendezvous || completes(plan, Sends::kRendezvous));
  return verdict;
}

}  // namespace lockstep::plan
