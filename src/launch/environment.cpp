#include "launch/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "launch/number.h"
#include "launch/printable.h"
#include "lockstep/error.h"

namespace lockstep::launch {

namespace {

/// What a rank knows itself by, and the flag that the user may mean.
struct IdentityVariable {
  std::string_view name;
  std::string_view flag;
};
constexpr std::array kIdentity = {IdentityVariable{"RANK", ""},
                                  IdentityVariable{"WORLD_SIZE", "--nproc-per-node"},
                                  IdentityVariable{"LOCAL_RANK", ""},
                                  IdentityVariable{"LOCAL_WORLD_SIZE", "--nproc-per-node"},
                                  IdentityVariable{"NODE_RANK", "--node-rank"},
                                  IdentityVariable{"GROUP_RANK", "--node-rank"},
                                  IdentityVariable{"GROUP_WORLD_SIZE", "--nnodes"},
                                  IdentityVariable{"ROLE_RANK", ""},
                                  IdentityVariable{"ROLE_WORLD_SIZE", ""},
                                  IdentityVariable{"MASTER_ADDR", "--master-addr"},
                                  IdentityVariable{"MASTER_PORT", "--master-port"},
                                  IdentityVariable{"TORCHELASTIC_RESTART_COUNT", ""},
                                  IdentityVariable{"TORCHELASTIC_MAX_RESTARTS", "--max-restarts"},
                                  IdentityVariable{"TORCHELASTIC_RUN_ID", "--rdzv-id"},
                                  IdentityVariable{"TORCHELASTIC_ERROR_FILE", "--log-dir"},
                                  IdentityVariable{"LOCKSTEP_JOB_ID", "--rdzv-id"}};
/// Those of srun and mpirun, which a rank would take for a launcher inside of ours.
constexpr std::array<std::string_view, 5> kOthersTasks = {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
                                                          "SLURM_STEP", "OMPI_COMM_WORLD_"};

}  // namespace

Environment current_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

void refuse_identity(const std::string& name, const std::string& value) {
  const auto found =
      std::ranges::find_if(kIdentity, [&](const IdentityVariable& known) { return known.name == name; });
  const bool is_task =
      std::ranges::any_of(kOthersTasks, [&](std::string_view prefix) { return name.starts_with(prefix); });
  if (found == kIdentity.end() && !is_task) return;
  const bool has_flag = found != kIdentity.end() && !found->flag.empty();
  throw UsageError(fmt::format("--env {}={}: the launcher says who a rank is; hint: {}", name,
                               printable(value),
                               has_flag ? fmt::format("give {}", found->flag) : "leave it out"));
}

void require_threads(const std::string& name, const std::string& value) {
  constexpr int kMostThreads = 1'000'000;
  std::string_view rest = value;
  try {
    for (auto comma = rest.find(','); name == "OMP_NUM_THREADS" && comma != std::string_view::npos;
         comma = rest.find(',')) {
      parse_number(name, rest.substr(0, comma), 1, kMostThreads);
      rest.remove_prefix(comma + 1);
    }
    parse_number(name, rest, 1, kMostThreads);
  } catch (const UsageError&) {
    throw UsageError(fmt::format("{}: '{}' is not a positive number of threads; hint: mend or unset it", name,
                                 printable(value)));
  }
}

}  // namespace lockstep::launch
