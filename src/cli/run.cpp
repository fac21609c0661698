#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/machine.h"
#include "cli/terminal.h"
#include "launch/launcher.h"
#include "lockstep/error.h"
#include "transport/engines.h"

namespace lockstep::cli {

namespace {

using launch::Job;

struct RunOptions {
  launch::JobOptions job;
  bool explain = false;
  JsonOutput json;
};

std::string cpus_text(const std::vector<int>& cpus) {
  return cpus.empty() ? "all" : fmt::format("{}", fmt::join(cpus, ","));
}

void print_settings(const std::vector<launch::Setting>& settings) {
  for (const auto& setting : settings) {
    fmt::print("  {:<27} {:<24} {}\n", setting.name, setting.value, setting.origin);
  }
}

/// As a shell would have to read it.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:,=@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

void print_plan(const Job& job, bool explain) {
  if (explain) {
    fmt::print("The job, and where each value came from:\n");
    print_settings(job.facts);
    if (!job.removed.empty()) {
      fmt::print("\nNot passed on to the ranks, since it tells of another launcher's tasks:\n");
      print_settings(job.removed);
    }
  }
  for (const auto& rank : job.ranks) {
    fmt::print("{}Rank {} (node {}, local rank {}), CPUs {}, logs in {}\n", explain ? "\n" : "", rank.rank,
               job.node_rank, rank.local_rank, cpus_text(rank.cpus), rank.log_dir.string());
    fmt::print("  runs {}\n", shell_line(job.command));
    if (explain) {
      print_settings(rank.settings);
    } else {
      for (const auto& setting : rank.settings) fmt::print("  {}={}\n", setting.name, setting.value);
    }
  }
}

nlohmann::json to_json(const std::vector<launch::Setting>& settings) {
  auto rows = nlohmann::json::array();
  for (const auto& setting : settings) {
    rows.push_back({{"name", setting.name}, {"value", setting.value}, {"origin", setting.origin}});
  }
  return rows;
}

nlohmann::json to_json(const Job& job) {
  auto ranks = nlohmann::json::array();
  for (const auto& rank : job.ranks) {
    ranks.push_back({{"rank", rank.rank},
                     {"local_rank", rank.local_rank},
                     {"node_rank", job.node_rank},
                     {"cpus", rank.cpus},
                     {"log_dir", rank.log_dir.string()},
                     {"environment", to_json(rank.settings)}});
  }
  return {{"command", job.command},
          {"facts", to_json(job.facts)},
          {"removed", to_json(job.removed)},
          {"ranks", std::move(ranks)}};
}

void check_engine(const std::string& name, const std::string& origin) {
  if (name.empty()) {
    throw UsageError(
        fmt::format("{}: '' is no engine; hint: choose threads, shm, gloo or mpi, or leave it out", origin));
  }
  transport::require_engine(name, origin);
}

void check_engines(const launch::JobOptions& job, const launch::Environment& environment) {
  constexpr std::string_view kSetting = "LOCKSTEP_ENGINE=";
  for (const auto& setting : job.settings) {
    if (setting.starts_with(kSetting)) check_engine(setting.substr(kSetting.size()), "--env LOCKSTEP_ENGINE");
  }
  const auto found = environment.find("LOCKSTEP_ENGINE");
  if (!job.engine.empty()) {
    check_engine(job.engine, "--engine");
  } else if (found != environment.end()) {
    check_engine(found->second, "LOCKSTEP_ENGINE");
  }
}

int run(RunOptions& options, const Invocation& invocation) {
  if (options.json.asked() && !options.job.dry_run) {
    throw UsageError("lockstep run: --json tells of a plan; hint: add --dry-run");
  }
  if (options.explain && !options.job.dry_run) {
    throw UsageError("lockstep run: --explain tells of a plan; hint: add --dry-run");
  }
  options.job.program = invocation.program;
  const auto environment = launch::current_environment();
  check_engines(options.job, environment);
  const Job job = launch::resolve_job(options.job, environment, look_at_machine(environment));
  if (options.job.dry_run) {
    if (options.json.prints_text()) print_plan(job, options.explain);
    options.json.write(to_json(job));
    return 0;
  }
  return launch::launch_job(
      job, environment,
      {.colour_stdout = use_colour(STDOUT_FILENO), .colour_stderr = use_colour(STDERR_FILENO)});
}

}  // namespace

Action define_run(Flags flags) {
  const auto options = std::make_shared<RunOptions>();
  auto& job = options->job;
  flags.text("--nproc-per-node", job.nproc_per_node, "Ranks on this node (default 1)", "N|auto");
  flags.text("--nnodes", job.nnodes, "Nodes of the job (default 1)", "N");
  flags.text("--node-rank", job.node_rank, "This node's number, from 0", "N");
  flags.text("--master-addr", job.master_addr, "Name or address of node 0", "HOST");
  flags.text("--master-port", job.master_port, "A port that is free there (default 29500, on one node any)",
             "PORT");
  flags.toggle("--standalone", job.standalone, "One node, with a port of its own; the default with one node");
  flags.text("--max-restarts", job.max_restarts, "How often the group is started again after a failure", "N");
  flags.text("--grace", job.grace, "Seconds between the request to stop and SIGKILL", "SECONDS");
  flags.text("--log-dir", job.log_dir, "Logs go to FOLDER/rank_<k>/stdout.log and stderr.log", "FOLDER");
  flags.text("--tee", job.tee, "Shown live: 0 nothing, 1 stdout, 2 stderr, 3 both; by local rank: 0:3,1:0",
             "WHAT");
  flags.text("--redirects", job.redirects, "Taken for torchrun's sake: logs are always kept", "WHAT");
  flags.text("--ranks-filter", job.ranks_filter, "Show only these ranks live, such as 0,3", "RANKS");
  flags.text("--local-ranks-filter", job.local_ranks_filter, "The same by numbers on this node", "RANKS");
  flags.text("--engine", job.engine, "threads, shm, gloo or mpi (default: from the topology)", "NAME");
  flags.choice("--bind", job.bind, {"core", "none"}, "Bind each rank to its share of the cores");
  flags.texts("--env", job.settings, "Set a variable for the ranks; may be repeated", "K=V");
  flags.text("--rdzv-id", job.job_id, "Name of the job (default: random)", "TEXT");
  flags.text("--role", job.role, "ROLE_NAME of the ranks", "TEXT");
  flags.given_number(
      "--monitor-interval", [](const double&) {}, 0.0, 86400.0, -1.0,
      "Seconds, taken for torchrun's sake: deaths are noticed at once");
  flags.toggle("--dry-run", job.dry_run, "Print what each rank would run, and start nothing");
  flags.toggle("--explain", options->explain, "With --dry-run: where every value came from");
  options->json.add_to(flags,
                       "Write JSON to FILE, given as --json=FILE, or to standard output instead of text");
  return [options](const Invocation& invocation) { return run(*options, invocation); };
}

}  // namespace lockstep::cli
