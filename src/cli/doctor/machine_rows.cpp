#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/doctor/rows.h"

namespace lockstep::cli::doctor {

Row cores_row(const Facts& facts) {
  const int cpus = facts.cpus();
  std::string value = count_text(std::ssize(facts.cores), "core");
  if (cpus != std::ssize(facts.cores)) value += fmt::format(" with {}", count_text(cpus, "hardware thread"));
  if (!facts.cpu.model_name.empty()) value += fmt::format(", {}", facts.cpu.model_name);
  if (cpus < facts.machine_cpus) {
    value += fmt::format("; affinity allows {} of {} CPUs", cpus, facts.machine_cpus);
  }
  Row row{.name = "cores", .value = value, .numbers = {{"cores", facts.cores.size()}, {"cpus", cpus}}};
  if (!facts.cpu.model_name.empty()) row.names["model"] = facts.cpu.model_name;
  return row;
}

Row memory_row(const Facts& facts) {
  const auto& memory = facts.memory;
  const uint64_t usable = facts.usable_memory();
  Row row{.name = "memory",
          .value = fmt::format("{}, of which {} available", bytes_text(memory.total_bytes),
                               bytes_text(memory.available_bytes)),
          .numbers = {{"total_bytes", memory.total_bytes}, {"available_bytes", memory.available_bytes}}};
  // A rank that has loaded LibTorch and a small model takes some 300 MiB.
  if (usable >= kGibibyte) return row;
  row.status = usable < 256 * kMebibyte ? Status::kFault : Status::kWarning;
  row.value += fmt::format("; {} are too few for two ranks", bytes_text(usable));
  row.mend = "ps -eo rss,pid,args --sort=-rss | head  # shows who holds the memory; end what is not needed";
  return row;
}

Row cgroup_row(const Facts& facts) {
  const auto& limits = facts.cgroup;
  const std::string cpus = limits.cpus ? fmt::format("{:.3g} CPUs", *limits.cpus) : "CPUs unlimited";
  const std::string memory =
      limits.memory_bytes ? fmt::format("memory {}", bytes_text(*limits.memory_bytes)) : "memory unlimited";
  Row row{.name = "control group", .value = fmt::format("{}, {}", cpus, memory)};
  if (limits.cpus) row.numbers["cpus"] = *limits.cpus;
  if (limits.memory_bytes) row.numbers["memory_bytes"] = static_cast<double>(*limits.memory_bytes);
  if (limits.cpus && *limits.cpus < 1) {
    row.status = Status::kWarning;
    row.value += "; ranks will be halted again and again";
    row.mend = "docker update --cpus=1 CONTAINER  # on the host, or ask whoever set the limit";
  }
  return row;
}

Row caches_row(const Facts& facts) {
  Row row{.name = "caches"};
  std::vector<std::string> levels;
  for (const auto& cache : facts.caches) {
    levels.push_back(fmt::format("L{} {}{}", cache.level, bytes_text(cache.bytes),
                                 cache.cores > 1 ? fmt::format(" for {} cores", cache.cores) : " a core"));
    row.numbers[fmt::format("l{}_bytes", cache.level)] = static_cast<double>(cache.bytes);
  }
  row.value = levels.empty() ? "this machine does not tell" : fmt::format("{}", fmt::join(levels, ", "));
  return row;
}

Row copy_row(const Facts& facts) {
  std::string value = fmt::format("{:.1f} GB/s copied by one core", facts.copy.one_core * 1e-9);
  if (facts.cores.size() > 1) {
    value += fmt::format(", {:.1f} GB/s by all {}", facts.copy.all_cores * 1e-9, facts.cores.size());
  }
  return {.name = "memory copy",
          .value = value,
          .numbers = {{"one_core_bytes_per_s", facts.copy.one_core},
                      {"all_cores_bytes_per_s", facts.copy.all_cores}}};
}

}  // namespace lockstep::cli::doctor
