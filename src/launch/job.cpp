#include "launch/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <random>
#include <utility>

#include "launch/hostlist.h"
#include "launch/number.h"
#include "launch/outer_launcher.h"
#include "launch/ports.h"
#include "launch/printable.h"
#include "launch/program.h"
#include "lockstep/error.h"

namespace lockstep::launch {

namespace {

constexpr int kMostRanksPerNode = 1024;
constexpr int kMostNodes = 65536;
constexpr int kDefaultPort = 29500;  // torchrun's
constexpr std::array kThreads = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"};

/// Gathers the job's facts; each is looked for in the flag, the environment, the outer launcher, then a
/// default.
class Resolver {
 public:
  Resolver(const JobOptions& options, const Environment& environment, const MachineFacts& machine)
      : options_(options),
        environment_(environment),
        machine_(machine),
        outer_(find_outer_launcher(environment)) {}

  Job resolve() {
    job_.command = find_program(options_.program, environment_);
    resolve_settings();
    resolve_nodes();
    resolve_nproc();
    resolve_master();
    resolve_limits();
    job_.removed = outer_.task_variables;
    for (int local_rank = 0; local_rank < nproc_; ++local_rank) job_.ranks.push_back(make_rank(local_rank));
    resolve_tee();
    return std::move(job_);
  }

 private:
  const Setting& fact(std::string name, std::string value, std::string origin) {
    job_.facts.push_back({std::move(name), std::move(value), std::move(origin)});
    return job_.facts.back();
  }

  /// The flag's value, or the variable's; nothing if neither is given.
  std::optional<Setting> given(const std::string& flag, const std::string& value,
                               const std::string& variable) const {
    if (!value.empty()) return Setting{flag, value, fmt::format("flag {}", flag)};
    const auto found = environment_.find(variable);
    if (variable.empty() || found == environment_.end()) return std::nullopt;
    return Setting{variable, found->second, fmt::format("environment {}", variable)};
  }

  /// The origin of a value that has a default.
  std::string chosen(const char* flag, std::string JobOptions::*value) const {
    return options_.*value == JobOptions{}.*value ? "default" : fmt::format("flag {}", flag);
  }

  void resolve_settings() {
    for (const auto& setting : options_.settings) {
      const auto equals = setting.find('=');
      if (equals == 0 || equals == std::string::npos) {
        throw UsageError(fmt::format("--env '{}': not of the form NAME=VALUE", setting));
      }
      own_.push_back({setting.substr(0, equals), setting.substr(equals + 1), "flag --env"});
      refuse_identity(own_.back().name, own_.back().value);
    }
    for (const char* name : kThreads) {
      if (const auto found = environment_.find(name); found != environment_.end())
        require_threads(name, found->second);
      for (const auto& setting : own_) {
        if (setting.name == name) require_threads(name, setting.value);
      }
    }
  }

  void resolve_nodes() {
    if (const auto nnodes = given("--nnodes", options_.nnodes, "NNODES")) {
      if (nnodes->value.find(':') != std::string::npos) {
        throw UsageError(
            fmt::format("{}: '{}' is a range; hint: give one number, worlds are of fixed size here",
                        nnodes->name, nnodes->value));
      }
      job_.nodes = parse_number(nnodes->name, nnodes->value, 1, kMostNodes);
      fact("nodes", nnodes->value, nnodes->origin);
    } else {
      job_.nodes = outer_.nodes.value_or(1);
      fact("nodes", std::to_string(job_.nodes), outer_.nodes ? outer_.name : "default");
    }
    if (options_.standalone && job_.nodes > 1) {
      throw UsageError(fmt::format("--standalone with {} nodes ({}); hint: leave one of them out", job_.nodes,
                                   job_.facts.back().origin));
    }
    if (const auto node_rank = given("--node-rank", options_.node_rank, "NODE_RANK")) {
      job_.node_rank = parse_number(node_rank->name, node_rank->value, 0, job_.nodes - 1);
      fact("node rank", node_rank->value, node_rank->origin);
    } else if (outer_.node_rank && outer_.nodes == job_.nodes) {
      job_.node_rank = *outer_.node_rank;
      fact("node rank", std::to_string(job_.node_rank), outer_.name);
    } else if (job_.nodes == 1) {
      fact("node rank", "0", "the only node");
    } else {
      need_in_real_run("--node-rank", "which of them is this?");
      fact("node rank", "0", "assumed for the dry run: give --node-rank");
    }
  }

  void resolve_nproc() {
    const auto nproc = given("--nproc-per-node", options_.nproc_per_node, "NPROC_PER_NODE");
    if (nproc && nproc->value == "auto") {
      nproc_ = machine_.usable_cores;
      fact("ranks per node", std::to_string(nproc_), fmt::format("{}: one per usable core", nproc->origin));
    } else if (nproc) {
      nproc_ = parse_number(nproc->name, nproc->value, 1, kMostRanksPerNode);
      fact("ranks per node", nproc->value, nproc->origin);
    } else {
      fact("ranks per node", "1", "default");
    }
    world_ = job_.nodes * nproc_;
    fact("world size", std::to_string(world_),
         fmt::format("nodes * ranks per node = {} * {}", job_.nodes, nproc_));
  }

  void resolve_master() {
    const bool alone =
        options_.standalone;  // asked for: what the environment says of a master is another job's
    const auto address = given("--master-addr", options_.master_addr, alone ? "" : "MASTER_ADDR");
    const auto port = given("--master-port", options_.master_port, alone ? "" : "MASTER_PORT");
    if (address) {
      if (!may_be_host(address->value)) {
        throw UsageError(
            fmt::format("{}: '{}' is not a host name or address; hint: give the name or address of node 0",
                        address->name, printable(address->value)));
      }
      master_addr_ = *address;
    } else if (job_.nodes == 1) {
      master_addr_ = {"--master-addr", "127.0.0.1", "one node"};
    } else if (!outer_.master_addr.empty()) {
      master_addr_ = {"--master-addr", outer_.master_addr, outer_.name};
    } else {
      need_in_real_run("--master-addr", "where is node 0?");
      master_addr_ = {"--master-addr", "127.0.0.1", "assumed for the dry run: give --master-addr"};
    }
    if (port) {
      master_port_ = {port->name, std::to_string(parse_number(port->name, port->value, 1, 65535)),
                      port->origin};
    } else if (job_.nodes == 1) {
      master_port_ = {"--master-port", "", "free now; nothing of Lockstep's opens it"};
      job_.choose_port = true;
    } else if (outer_.master_port) {
      master_port_ = {"--master-port", std::to_string(*outer_.master_port), outer_.name};
    } else {
      master_port_ = {"--master-port", std::to_string(kDefaultPort), "default"};
    }
    fact("master address", master_addr_.value, master_addr_.origin);
    fact("master port", job_.choose_port ? "chosen at start" : master_port_.value, master_port_.origin);
    const bool serves = job_.nodes > 1 && job_.node_rank == 0 && !options_.dry_run;
    if (serves) {
      require_free_port(master_addr_.value, std::stoi(master_port_.value), master_addr_.name,
                        master_port_.name);
    }
  }

  void resolve_limits() {
    job_.max_restarts = parse_number("--max-restarts", options_.max_restarts, 0, 1'000'000);
    if (job_.max_restarts > 0 && job_.nodes > 1) {
      throw UsageError(
          fmt::format("--max-restarts {} with {} nodes: a launcher restarts the ranks of its own node only; "
                      "hint: let the scheduler requeue the job",
                      job_.max_restarts, job_.nodes));
    }
    double grace = -1;
    const auto& text = options_.grace;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), grace);
    const bool is_number = error == std::errc() && end == text.data() + text.size() && std::isfinite(grace);
    if (!is_number || grace < 0 || grace > 86400) {
      throw UsageError(fmt::format("--grace: '{}' is not a number of seconds between 0 and 86400", text));
    }
    job_.grace_s = grace;
    fact("restarts", options_.max_restarts, chosen("--max-restarts", &JobOptions::max_restarts));
    fact("grace seconds", text, chosen("--grace", &JobOptions::grace));
    resolve_log_dir();
    job_id_ = make_job_id();
    if (options_.bind == "core") shares_ = share_cores(machine_.cores, nproc_);
    fact("cores", std::to_string(machine_.usable_cores), "affinity and CPU quota of this process");
    const std::string binding = options_.bind != "core" ? "flag --bind"
                                : shares_.empty()       ? "more ranks than cores"
                                                        : "each rank gets its share of the cores";
    fact("binding", shares_.empty() ? "none" : "core", binding);
    fact("OpenBLAS kernels", machine_.blas.coretype.empty() ? "left alone" : machine_.blas.coretype,
         machine_.blas.reason);
  }

  void resolve_log_dir() {
    if (options_.log_dir.empty()) throw UsageError("--log-dir: the name is empty");
    job_.log_dir = options_.log_dir;
    std::error_code error;
    full_log_dir_ = std::filesystem::absolute(job_.log_dir, error);
    if (error) {
      throw UsageError(fmt::format(
          "--log-dir {}: {}; hint: the current folder is gone; go to another, or give a full path",
          options_.log_dir, error.message()));
    }
  }

  Setting make_job_id() const {
    if (!options_.job_id.empty()) return {"", options_.job_id, "flag --rdzv-id"};
    if (!outer_.job_id.empty() && job_.nodes > 1) return {"", outer_.job_id, outer_.name};
    if (job_.nodes > 1) return {"", master_addr_.value + ":" + master_port_.value, "master address and port"};
    std::random_device random;
    return {"", fmt::format("{:08x}{:08x}", random(), random()), "random"};
  }

  RankSpec make_rank(int local_rank) const {
    const int rank = job_.node_rank * nproc_ + local_rank;
    RankSpec spec{.rank = rank,
                  .local_rank = local_rank,
                  .cpus = shares_.empty() ? std::vector<int>{} : shares_[static_cast<size_t>(local_rank)],
                  .tee_stdout = true,
                  .tee_stderr = true,
                  .settings = {},
                  .log_dir = job_.log_dir / fmt::format("rank_{}", rank)};
    const std::string rank_rule = fmt::format("node_rank * nproc_per_node + local_rank = {} * {} + {}",
                                              job_.node_rank, nproc_, local_rank);
    const auto set = [&](std::string name, std::string value, std::string origin) {
      spec.settings.push_back({std::move(name), std::move(value), std::move(origin)});
    };
    const std::string rank_text = std::to_string(rank);
    const std::string world_text = std::to_string(world_);
    set("RANK", rank_text, rank_rule);
    set("WORLD_SIZE", world_text, "world size");
    set("LOCAL_RANK", std::to_string(local_rank), "place on this node");
    set("LOCAL_WORLD_SIZE", std::to_string(nproc_), "ranks per node");
    set("NODE_RANK", std::to_string(job_.node_rank), "node rank");
    set("GROUP_RANK", std::to_string(job_.node_rank), "node rank, by torchrun's name");
    set("GROUP_WORLD_SIZE", std::to_string(job_.nodes), "nodes, by torchrun's name");
    set("ROLE_NAME", options_.role, chosen("--role", &JobOptions::role));
    set("ROLE_RANK", rank_text, "rank");
    set("ROLE_WORLD_SIZE", world_text, "world size");
    set("MASTER_ADDR", master_addr_.value, master_addr_.origin);
    set("MASTER_PORT", job_.choose_port ? "chosen at start" : master_port_.value, master_port_.origin);
    set("TORCHELASTIC_RESTART_COUNT", "0", "attempt");
    set("TORCHELASTIC_MAX_RESTARTS", std::to_string(job_.max_restarts),
        chosen("--max-restarts", &JobOptions::max_restarts));
    set("TORCHELASTIC_RUN_ID", job_id_.value, job_id_.origin);
    set("TORCHELASTIC_ERROR_FILE", (full_log_dir_ / spec.log_dir.filename() / "error.json").string(),
        "log folder");
    set("LOCKSTEP_JOB_ID", job_id_.value, job_id_.origin);
    if (const auto engine = given("--engine", options_.engine, "LOCKSTEP_ENGINE")) {
      set("LOCKSTEP_ENGINE", engine->value, engine->origin);
    }
    add_threads(spec);
    for (const auto& own : own_) {
      std::erase_if(spec.settings, [&](const Setting& other) { return other.name == own.name; });
      spec.settings.push_back(own);
    }
    return spec;
  }

  void add_threads(RankSpec& spec) const {
    const std::string threads = std::to_string(threads_per_rank(machine_.usable_cores, nproc_));
    const std::string rule =
        fmt::format("usable cores / ranks = {} / {}, at least 1", machine_.usable_cores, nproc_);
    for (const char* name : kThreads) {
      if (!keep_own(spec, name)) spec.settings.push_back({name, threads, rule});
    }
    if (keep_own(spec, "OPENBLAS_CORETYPE")) return;
    if (!machine_.blas.coretype.empty()) {
      spec.settings.push_back({"OPENBLAS_CORETYPE", machine_.blas.coretype, machine_.blas.reason});
    }
  }

  /// Notes a variable that the user has set, and that therefore stands; one that is empty says nothing.
  bool keep_own(RankSpec& spec, const std::string& name) const {
    const auto found = environment_.find(name);
    if (found == environment_.end() || found->second.empty()) return false;
    spec.settings.push_back({name, found->second, "environment"});
    return true;
  }

  void resolve_tee() {
    const auto tee_all = [&](int streams, int local_rank) {
      for (auto& rank : job_.ranks) {
        if (local_rank >= 0 && rank.local_rank != local_rank) continue;
        rank.tee_stdout = (streams & 1) != 0;
        rank.tee_stderr = (streams & 2) != 0;
      }
    };
    for (const auto& [streams, local_rank] : streams_of("--tee", options_.tee)) tee_all(streams, local_rank);
    if (!options_.redirects.empty()) streams_of("--redirects", options_.redirects);
    show_only("--ranks-filter", options_.ranks_filter, &RankSpec::rank, world_);
    show_only("--local-ranks-filter", options_.local_ranks_filter, &RankSpec::local_rank, nproc_);
  }

  /// As torchrun has it: 0 none, 1 stdout, 2 stderr, 3 both, for all (-1) or by local rank (`0:3,1:0`).
  std::vector<std::pair<int, int>> streams_of(const char* flag, const std::string& text) const {
    std::vector<std::pair<int, int>> found;
    for (const auto& part : split(text)) {
      const auto colon = part.find(':');
      const bool for_all = colon == std::string::npos;
      const int local_rank = for_all ? -1 : parse_number(flag, part.substr(0, colon), 0, nproc_ - 1);
      found.emplace_back(parse_number(flag, for_all ? part : part.substr(colon + 1), 0, 3), local_rank);
    }
    return found;
  }

  void show_only(const char* flag, const std::string& list, int RankSpec::*number, int limit) {
    if (list.empty()) return;
    std::vector<int> shown;
    for (const auto& part : split(list)) shown.push_back(parse_number(flag, part, 0, limit - 1));
    for (auto& rank : job_.ranks) {
      if (std::find(shown.begin(), shown.end(), rank.*number) == shown.end())
        rank.tee_stdout = rank.tee_stderr = false;
    }
  }

  static std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    for (size_t begin = 0;;) {
      const auto comma = text.find(',', begin);
      parts.push_back(text.substr(begin, comma - begin));
      if (comma == std::string::npos) return parts;
      begin = comma + 1;
    }
  }

  void need_in_real_run(const char* flag, const char* question) const {
    if (options_.dry_run) return;
    throw UsageError(fmt::format("--nnodes {}: {}; hint: give {}", job_.nodes, question, flag));
  }

  const JobOptions& options_;
  const Environment& environment_;
  const MachineFacts& machine_;
  const OuterLauncher outer_;
  Job job_;
  int nproc_ = 1;
  int world_ = 1;
  Setting master_addr_, master_port_, job_id_;
  std::vector<Setting> own_;  // by --env
  std::filesystem::path full_log_dir_;
  std::vector<std::vector<int>> shares_;
};

}  // namespace

Job resolve_job(const JobOptions& options, const Environment& environment, const MachineFacts& machine) {
  return Resolver(options, environment, machine).resolve();
}

Environment rank_environment(const Job& job, const RankSpec& rank, const Environment& inherited, int attempt,
                             int port) {
  Environment environment = inherited;
  for (const auto& variable : job.removed) environment.erase(variable.name);
  for (const auto& setting : rank.settings) environment[setting.name] = setting.value;
  environment["TORCHELASTIC_RESTART_COUNT"] = std::to_string(attempt);
  if (job.choose_port) environment["MASTER_PORT"] = std::to_string(port);
  return environment;
}

}  // namespace lockstep::launch
