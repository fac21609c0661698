#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/doctor/rows.h"
#include "launch/number.h"
#include "lockstep/error.h"

namespace lockstep::cli::doctor {

namespace {

constexpr const char* kVariables[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"};

std::string export_threads(int threads) {
  return fmt::format("export OMP_NUM_THREADS={0} OPENBLAS_NUM_THREADS={0}", threads);
}

/// Why a variable is no number of threads; "" if all are.
std::string bad_variable(const Facts& facts) {
  for (const char* name : kVariables) {
    const std::string text = facts.variable(name);
    if (text.empty()) continue;
    try {
      launch::parse_number(name, text, 1, 1 << 20);
    } catch (const UsageError& error) {
      return error.what();
    }
  }
  return "";
}

std::string settings_text(const Facts& facts) {
  std::vector<std::string> settings;
  for (const char* name : kVariables) {
    const std::string text = facts.variable(name);
    if (!text.empty()) settings.push_back(fmt::format("{}={}", name, text));
  }
  return settings.empty() ? "OMP_NUM_THREADS is not set" : fmt::format("{}", fmt::join(settings, " "));
}

}  // namespace

int fitting_threads(const Facts& facts) {
  return launch::usable_cores(facts.cores, facts.cgroup.cpus);
}

std::string export_command(const Facts& facts) {
  const std::string& coretype = facts.blas.right.coretype;
  return export_threads(fitting_threads(facts)) +
         (coretype.empty() ? "" : fmt::format(" OPENBLAS_CORETYPE={}", coretype));
}

Row threads_row(const Facts& facts) {
  const int fitting = fitting_threads(facts);
  const bool throttled = fitting < std::ssize(facts.cores);
  const int most = throttled ? fitting : std::max(fitting, facts.cpus());
  const TorchProbe& torch = facts.blas.working_torch();
  Row row{.name = "threads", .value = settings_text(facts)};
  if (torch.ok) {
    row.value += fmt::format(": LibTorch takes {}", torch.threads);
    if (torch.blas_threads > 0) row.value += fmt::format(", OpenBLAS {}", torch.blas_threads);
    row.numbers = {{"libtorch", torch.threads}, {"openblas", torch.blas_threads}, {"fitting", fitting}};
  }
  const bool too_many = std::max(torch.threads, torch.blas_threads) > most;
  // LibTorch counts the cores of some virtual machines wrongly. Fewer threads by the user's own wish are
  // fine.
  const bool too_few = torch.ok && torch.threads < fitting && facts.variable("OMP_NUM_THREADS").empty();
  const std::string bad = bad_variable(facts);
  if (!bad.empty()) {
    row.value = bad;
  } else if (too_many || too_few) {
    row.value += throttled ? fmt::format("; the control group grants {}", count_text(fitting, "core"))
                           : fmt::format("; there are {}", count_text(std::ssize(facts.cores), "core"));
  } else {
    return row;
  }
  row.status = Status::kWarning;
  row.mend = export_threads(fitting);
  return row;
}

}  // namespace lockstep::cli::doctor
