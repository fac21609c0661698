#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/collective_word.h"
#include "cli/command_line.h"
#include "cli/comment.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/pipeline_options.h"
#include "cli/plan_file.h"
#include "cli/progress.h"
#include "cli/size.h"
#include "lockstep/error.h"
#include "lockstep/plan/collectives.h"
#include "lockstep/plan/grid.h"
#include "lockstep/plan/json.h"
#include "lockstep/plan/text.h"
#include "lockstep/plan/verify.h"

namespace lockstep::cli {

namespace {

constexpr int64_t kMostProvedSlots = int64_t{1} << 25;  // 32 bytes each
constexpr int64_t kMostStepsWithRows = 20'000;          // laying out rows takes steps squared at worst

struct PlanOptions {
  std::string collective;
  std::string algorithm;
  std::string file;
  int64_t world = 4;
  int64_t root = 0;
  int64_t ranks_per_node = 0;
  int64_t count = 1 << 20;
  bool text = false;
  JsonOutput json;
};

int list_algorithms(plan::Collective collective, const JsonOutput& json) {
  auto document = nlohmann::json::array();
  if (json.prints_text()) fmt::print("{} can be done by:\n\n", plan::name(collective));
  for (const auto& algorithm : plan::algorithms_of(collective)) {
    if (json.prints_text()) fmt::print("  {:<20} {}\n", algorithm.name, algorithm.summary);
    document.push_back({{"algorithm", algorithm.name}, {"summary", algorithm.summary}});
  }
  if (json.prints_text()) fmt::print("\nhint: --algorithm NAME draws and proves one\n");
  json.write(document);
  return 0;
}

bool has_root(plan::Collective collective) {
  using enum plan::Collective;
  return collective == kBroadcast || collective == kReduce || collective == kScatter || collective == kGather;
}

plan::Plan made_plan(const PlanOptions& options) {
  const plan::Collective collective = collective_named(options.collective);
  require_algorithm(collective, options.algorithm);
  if (options.root != 0 && !has_root(collective)) {
    throw UsageError(fmt::format("--root {}: {} has no root", options.root, plan::name(collective)));
  }
  const bool by_nodes = plan::plain_name(options.algorithm) == "hierarchical";
  if (by_nodes && options.ranks_per_node == 0) {
    throw UsageError("--algorithm hierarchical: the size of a node is missing; hint: --ranks-per-node 2");
  }
  if (!by_nodes && options.ranks_per_node != 0) {
    throw UsageError(
        fmt::format("--ranks-per-node {}: only --algorithm hierarchical has nodes", options.ranks_per_node));
  }
  return plan::make_plan(collective, options.algorithm,
                         {.world = static_cast<int>(options.world),
                          .root = static_cast<int>(options.root),
                          .ranks_per_node = static_cast<int>(options.ranks_per_node)});
}

/// What the collective promises, in words.
std::string promise(const plan::Plan& plan) {
  using enum plan::Collective;
  switch (plan.collective) {
    case kAllReduce:
      return fmt::format("every rank ends with the sum of all {} ranks, each contribution once", plan.world);
    case kReduce:
      return fmt::format("rank {} ends with the sum of all {} ranks, each contribution once", plan.root,
                         plan.world);
    case kReduceScatter:
      return fmt::format("rank k ends with chunk k of the sum of all {} ranks, each contribution once",
                         plan.world);
    case kBroadcast:
      return fmt::format("every rank ends with the data of rank {}", plan.root);
    case kScatter:
      return fmt::format("rank k ends with chunk k of rank {}", plan.root);
    case kGather:
      return fmt::format("rank {} ends with the parts of all {} ranks", plan.root, plan.world);
    case kAllGather:
      return fmt::format("every rank ends with the parts of all {} ranks", plan.world);
    case kAllToAll:
      return "every rank ends with the part that each rank has for it";
    case kBarrier:
      break;
  }
  return "no rank leaves before every rank has come";
}

std::string_view order_text(plan::Order order) {
  using enum plan::Order;
  switch (order) {
    case kNone:
      return "nothing is added";
    case kRank:
      return "all ranks add in rank order";
    case kPosition:
      return "all ranks add in the same order, which depends on the position in the buffer";
    case kTree:
      return "all ranks add in the same order, along a tree";
    case kNode:
      return "all ranks add in rank order inside a node, then in node order";
  }
  return "";
}

/// What has been proved, a line each.
std::vector<std::string> proofs(const plan::Plan& plan, const plan::Verdict& verdict) {
  std::vector<std::string> lines = {promise(plan),
                                    "nothing is read before it has arrived, and no load races with a store"};
  lines.emplace_back(verdict.rendezvous ? "it cannot deadlock, even if every send waits for its receive"
                                        : "it cannot deadlock if sends are buffered; it can if they wait");
  if (plan.order != plan::Order::kNone) lines.emplace_back(order_text(plan.order));
  lines.emplace_back(verdict.exact
                         ? "for every count; contributions tracked one by one"
                         : "for every count; contributions tracked by number and 128-bit fingerprint");
  return lines;
}

std::string report(const plan::Plan& plan, const plan::Verdict& verdict, int64_t count) {
  if (!verdict.ok) return fmt::format("refused  {}\n", verdict.problem);
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("{:<8} {}\n", label, value);
  };
  const auto lines = proofs(plan, verdict);
  for (size_t i = 0; i < lines.size(); ++i) line(i == 0 ? "proved" : "", lines[i]);
  const auto& traffic = verdict.traffic;
  const auto cost = [&](std::string_view label, std::string_view what, const std::string& value) {
    line(label, fmt::format("{:<22} {:>12}", what, value));
  };
  const bool each = plan.division == plan::Division::kEach;
  text += "\n";
  line("costs",
       plan.collective == plan::Collective::kBarrier
           ? "a barrier moves no data"
           : fmt::format("of {} float32{}: {}", count, each ? " in each part" : "", bytes_text(count * 4)));
  cost("", "sent by a rank", bytes_text(traffic.bytes_per_rank));
  cost("", "over a link", bytes_text(traffic.bytes_per_link));
  cost("", "in and out of a rank", bytes_text(traffic.bytes_at_rank));
  cost("", "by all ranks", bytes_text(traffic.total_bytes));
  cost("", "messages of a rank", fmt::format("{}", traffic.messages_per_rank));
  cost("", "messages of all ranks", fmt::format("{}", traffic.total_messages));
  cost("", "rounds", fmt::format("{}", traffic.rounds));
  return text;
}

std::string picture(const plan::Plan& plan) {
  try {
    return plan::grid(plan);
  } catch (const UsageError& too_large) {
    return fmt::format("({})\n", too_large.what());
  }
}

nlohmann::json document_of(const plan::Plan& plan, const plan::Verdict& verdict, int64_t count) {
  auto document = nlohmann::json::parse(plan::to_json(plan));
  int64_t steps = 0;
  for (int rank = 0; rank < plan.world; ++rank) steps += plan.size(rank);
  if (steps <= kMostStepsWithRows) {
    const auto rows = plan::grid_rows(plan);
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      for (size_t i = 0; i < rows[rank].size(); ++i) document["ranks"][rank][i]["row"] = rows[rank][i];
    }
  }
  document["verdict"] = {{"ok", verdict.ok},
                         {"problem", verdict.problem},
                         {"blocked", verdict.blocked},
                         {"rendezvous", verdict.rendezvous},
                         {"exact", verdict.exact},
                         {"proved", verdict.ok ? proofs(plan, verdict) : std::vector<std::string>()}};
  const auto& traffic = verdict.traffic;
  document["traffic"] = {{"count", count},
                         {"element_bytes", 4},
                         {"bytes_per_rank", traffic.bytes_per_rank},
                         {"bytes_per_link", traffic.bytes_per_link},
                         {"bytes_at_rank", traffic.bytes_at_rank},
                         {"total_bytes", traffic.total_bytes},
                         {"messages_per_rank", traffic.messages_per_rank},
                         {"total_messages", traffic.total_messages},
                         {"rounds", traffic.rounds}};
  return document;
}

int show(const plan::Plan& plan, const PlanOptions& options) {
  if (const int64_t slots = int64_t{plan.world} * plan.slots; slots > kMostProvedSlots) {
    throw UsageError(
        fmt::format("{} by {} on {} ranks has {} slots, more than {} to prove; hint: a smaller world",
                    plan::name(plan.collective), plan.algorithm, plan.world, slots, kMostProvedSlots));
  }
  const plan::Verdict verdict = [&] {
    const SlowWork slow(
        fmt::format("proving {} by {} on {} ranks", plan::name(plan.collective), plan.algorithm, plan.world));
    return plan::verify(plan, {.count = options.count});
  }();
  if (options.json.prints_text()) {
    const std::string told = report(plan, verdict, options.count);
    if (options.text) {
      fmt::print("{}{}", plan::to_string(plan), as_comment(told));
    } else {
      fmt::print("{} by {}, {} rank{}\n\n{}\n{}", plan::name(plan.collective), plan.algorithm, plan.world,
                 plan.world == 1 ? "" : "s", picture(plan), told);
    }
  }
  if (options.json.asked()) options.json.write(document_of(plan, verdict, options.count));
  return verdict.ok ? 0 : kExitFailure;
}

int run(const PlanOptions& options) {
  refuse_as_collective("plan", options.collective);
  if (!options.file.empty()) {
    if (!options.collective.empty() || !options.algorithm.empty()) {
      throw UsageError("--file brings its own plan; hint: leave out the collective and --algorithm");
    }
    return show(read_plan_file(options.file), options);
  }
  if (options.collective.empty()) {
    throw UsageError(
        "a collective or --file is missing; hint: lockstep plan allreduce --algorithm ring --world 4");
  }
  if (options.algorithm.empty()) return list_algorithms(collective_named(options.collective), options.json);
  return show(made_plan(options), options);
}

}  // namespace

Action define_plan(Flags flags) {
  const auto options = std::make_shared<PlanOptions>();
  flags.word("collective", options->collective,
             "allreduce, broadcast, reduce, scatter, gather, allgather, reducescatter, alltoall, barrier; or "
             "pipeline, which has flags of its own: see lockstep plan pipeline --help",
             false, collective_words());
  flags.text("--algorithm", options->algorithm, "How; left out: list what there is", "NAME");
  flags.number("--world", options->world, 1, 32768, "Ranks");
  flags.number("--root", options->root, 0, 32767, "Root, where there is one");
  flags.number("--ranks-per-node", options->ranks_per_node, 0, 32768, "Ranks on each node, for hierarchical");
  flags.number("--count", options->count, 0, 1'000'000'000, "Elements (float32) for the costs");
  flags.text("--file", options->file, "Prove the plan in this file, text or JSON, instead", "FILE");
  flags.toggle("--text", options->text, "Print the text form instead of the grid; --file reads it");
  options->json.add_to(flags);
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace lockstep::cli
