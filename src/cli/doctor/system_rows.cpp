#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/doctor/rows.h"
#include "transport/engines.h"

namespace lockstep::cli::doctor {

namespace {

/// `open files: 1024`, with the number for JSON.
Row limit_row(const char* name, const char* what, std::optional<uint64_t> limit,
              std::string (*text)(uint64_t)) {
  Row row{.name = name, .value = fmt::format("{}: {}", what, limit ? text(*limit) : "unlimited")};
  if (limit) row.numbers["limit"] = static_cast<double>(*limit);
  return row;
}

Row gloo_row(const Facts& facts, Row row) {
  if (facts.engines.gloo_problem.empty()) return row;
  row.status = Status::kWarning;
  row.value = facts.engines.gloo_problem;
  row.mend = mend_library(facts, facts.sudo() + "apt-get install --reinstall libgloo0");
  return row;
}

Row mpi_row(const Facts& facts, Row row) {
  const std::string& problem = facts.engines.mpirun_problem;
  if (problem.empty()) return row;
  row.status = Status::kWarning;
  row.value += fmt::format("; {}", problem);
  row.mend = problem.find("root") != std::string::npos
                 ? "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
                 : mend_library(facts, facts.sudo() + "apt-get install --reinstall openmpi-bin");
  return row;
}

Row shm_row(const Facts& facts, Row row) {
  if (facts.kernel.memfd_problem.empty()) {
    row.value += fmt::format("; up to {}", bytes_text(facts.usable_memory()));
    return row;
  }
  row.status = Status::kFault;
  row.value += fmt::format("; memfd_create: {}", facts.kernel.memfd_problem);
  row.mend =
      "docker run --security-opt seccomp=unconfined ...  # or whatever lets containers call memfd_create";
  return row;
}

}  // namespace

std::string mend_library(const Facts& facts, const std::string& command) {
  return facts.has_addresses_for_torch() ? command : address_space_row(facts).mend;
}

std::vector<Row> engine_rows(const Facts& facts) {
  std::vector<Row> rows;
  for (const auto& engine : transport::engines()) {
    Row row{.name = fmt::format("engine {}", engine.name), .value = std::string(engine.what)};
    if (!engine.built) {
      row.status = Status::kWarning;
      row.value += "; not built";
      row.mend =
          fmt::format("{}apt-get install {}  # then build Lockstep again", facts.sudo(), engine.package);
      rows.push_back(std::move(row));
      continue;
    }
    if (!engine.version.empty()) {
      row.value += fmt::format(", version {}", engine.version);
      row.names["version"] = engine.version;
    }
    if (engine.name == "shm") row = shm_row(facts, std::move(row));
    if (engine.name == "gloo") row = gloo_row(facts, std::move(row));
    if (engine.name == "mpi") row = mpi_row(facts, std::move(row));
    rows.push_back(std::move(row));
  }
  return rows;
}

Row address_space_row(const Facts& facts) {
  const auto limit = facts.limits.address_space_bytes;
  Row row = limit_row("ulimit -v", "address space", limit, bytes_text);
  if (!facts.has_addresses_for_torch()) {
    row.status = Status::kFault;
    row.value += fmt::format("; a program with LibTorch needs {}", bytes_text(Facts::kTorchAddresses));
  } else if (const uint64_t shared = facts.memory.total_bytes * facts.cores.size();
             !facts.has_addresses(Facts::kTorchAddresses + shared)) {
    // The engine shm maps the memory of all ranks within half of the limit.
    row.status = Status::kWarning;
    row.value += fmt::format("; with a rank on each core, each can share {}",
                             bytes_text(*limit / 2 / facts.cores.size()));
  } else {
    return row;
  }
  row.mend = "ulimit -v unlimited  # refused? then in a new shell, or as whoever set it";
  return row;
}

Row locked_memory_row(const Facts& facts) {
  const auto limit = facts.limits.locked_memory_bytes;
  Row row = limit_row("ulimit -l", "locked memory", limit, bytes_text);
  if (limit && *limit < kMebibyte) {
    row.status = Status::kWarning;
    row.value += "; network cards with RDMA need more";
    row.mend = "ulimit -l unlimited  # for good: a line in /etc/security/limits.conf";
  }
  return row;
}

Row open_files_row(const Facts& facts) {
  const auto limit = facts.limits.open_files;
  Row row = limit_row("ulimit -n", "open files", limit, [](uint64_t count) { return std::to_string(count); });
  constexpr uint64_t kEnough = 1024;
  if (limit && *limit < kEnough) {
    const uint64_t reachable = std::min<uint64_t>(facts.limits.open_files_hard.value_or(4096), 4096);
    row.status = Status::kWarning;
    row.value += "; a rank has a connection to every other one, the launcher four files for each";
    row.mend =
        reachable > *limit
            ? fmt::format("ulimit -n {}", reachable)
            : fmt::format("echo '* - nofile 4096' | {}tee -a /etc/security/limits.conf  # then log in again",
                          facts.sudo());
  }
  return row;
}

Row dev_shm_row(const Facts& facts) {
  const auto& disk = facts.dev_shm;
  Row row{.name = "/dev/shm",
          .value = disk.found ? fmt::format("{}, of which {} free", bytes_text(disk.total_bytes),
                                            bytes_text(disk.free_bytes))
                              : "not there",
          .numbers = {{"total_bytes", disk.total_bytes}, {"free_bytes", disk.free_bytes}}};
  if (!disk.found || disk.free_bytes <= 64 * kMebibyte) {
    row.status = Status::kWarning;
    row.value += "; Lockstep does not use it, but Open MPI and Python's data loaders do";
    row.mend =
        disk.found
            ? fmt::format("{}mount -o remount,size=1G /dev/shm  # a container: docker run --shm-size=1g",
                          facts.sudo())
            : fmt::format("{0}mkdir -p /dev/shm && {0}mount -t tmpfs tmpfs /dev/shm", facts.sudo());
  }
  return row;
}

Row launcher_row(const Facts& facts) {
  const auto& kernel = facts.kernel;
  Row row{.name = "kernel", .value = "pidfd, child subreaper and memfd work"};
  std::vector<std::string> problems;
  if (!kernel.pidfd_problem.empty()) problems.push_back("pidfd_open: " + kernel.pidfd_problem);
  if (!kernel.subreaper_problem.empty()) problems.push_back("child subreaper: " + kernel.subreaper_problem);
  if (!kernel.memfd_problem.empty()) problems.push_back("memfd_create: " + kernel.memfd_problem);
  if (problems.empty()) return row;
  row.status = Status::kFault;
  row.value =
      fmt::format("{}; lockstep run needs Linux 5.3 or later and leave to use it", fmt::join(problems, ", "));
  row.mend = "docker run --security-opt seccomp=unconfined ...  # without a container: a newer kernel";
  return row;
}

Row slurm_row(const Facts& facts) {
  if (facts.slurm.empty()) return {.name = "SLURM", .value = "not here; only clusters have it"};
  return {.name = "SLURM", .value = facts.slurm, .names = {{"scontrol", facts.slurm}}};
}

Row ports_row(const Facts& facts) {
  const auto& network = facts.network;
  Row row{.name = "ports",
          .value = fmt::format("29500 is free, {} to {} serve outgoing connections", network.first_local_port,
                               network.last_local_port),
          .numbers = {{"first_local_port", network.first_local_port},
                      {"last_local_port", network.last_local_port}}};
  if (!network.loopback_problem.empty()) {
    row.status = Status::kWarning;
    row.value = network.loopback_problem;
    row.mend = facts.sudo() + "ip link set lo up";
  } else if (!network.usual_port_problem.empty()) {
    row.status = Status::kWarning;
    row.value = "29500, the usual port of node 0, is in use here; matters for several nodes only";
    row.mend = "lockstep run --master-port 29501 ...  # or end what `ss -ltnp sport = :29500` shows";
  }
  return row;
}

}  // namespace lockstep::cli::doctor
