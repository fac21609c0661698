#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/doctor/facts.h"
#include "launch/capture.h"
#include "launch/ports.h"
#include "lockstep/error.h"

namespace lockstep::cli::doctor {

namespace {

constexpr const char* kTooFewAddresses = "too small an address space (ulimit -v)";

/// A second look costs a start of LibTorch: only taken when the setting would change something.
BlasFacts gather_blas(const Facts& known) {
  const launch::Environment& environment = known.environment;
  const auto probe = [&](const launch::Environment& with) {
    return known.has_addresses_for_torch() ? probe_torch(with) : TorchProbe{.problem = kTooFewAddresses};
  };
  const launch::Environment untouched = launch::with_coretype(environment, "");
  BlasFacts facts;
  facts.found = launch::probe_openblas(environment);
  facts.right = launch::choose_coretype(known.cpu, launch::probe_openblas(untouched), untouched);
  facts.torch = probe(environment);
  const launch::Environment mended = launch::with_coretype(environment, facts.right.coretype);
  facts.mended = launch::probe_openblas(mended);
  const bool same = facts.mended.core == facts.found.core || facts.torch.missing;
  facts.mended_torch = same ? facts.torch : probe(mended);
  return facts;
}

/// As many of them as can have a thread each with its stack, heap and blocks.
std::vector<launch::Core> cores_within(std::vector<launch::Core> cores, uint64_t addresses) {
  constexpr uint64_t kOfAThread = uint64_t{256} << 20;
  const uint64_t threads = std::max<uint64_t>(1, addresses / kOfAThread);
  if (threads < cores.size()) cores.resize(threads);
  return cores;
}

std::string gloo_problem() {
  for (const char* name : {"libgloo.so.0", "libgloo.so"}) {
    // Not to be unloaded: what its libraries have allocated would look like a leak.
    if (dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE) != nullptr) return "";
  }
  return dlerror();
}

/// An outer mpirun or srun in the environment would make this one think that it is a part of it.
std::string mpirun_problem(launch::Environment environment) {
  std::erase_if(environment, [](const auto& entry) {
    const std::string& name = entry.first;
    return name.starts_with("OMPI_COMM_") || name.starts_with("PMIX_") || name.starts_with("SLURM_");
  });
  const launch::Captured run =
      launch::capture({"mpirun", "-n", "1", "true"}, environment, std::chrono::seconds(5));
  if (run.ok()) return "";
  if (!run.started) return fmt::format("mpirun: {}", run.errors);
  if (run.timed_out) return "mpirun does not end";
  if (run.errors.find("as root") != std::string::npos) return "mpirun refuses to run as root";
  return fmt::format("mpirun ends with exit code {}", run.exit_code);
}

template <typename Call>
std::string problem_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

NetworkFacts gather_network() {
  NetworkFacts facts;
  facts.loopback_problem = problem_of([] { launch::find_free_port(); });
  facts.usual_port_problem = problem_of([] { launch::require_free_port("127.0.0.1", 29500); });
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  range >> facts.first_local_port >> facts.last_local_port;
  return facts;
}

/// Where a program lies on PATH, or "".
std::string find_on_path(const std::string& name, const launch::Environment& environment) {
  const auto path = environment.find("PATH");
  if (path == environment.end()) return "";
  std::istringstream folders(path->second);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (std::filesystem::path(folder) / name).string();
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

}  // namespace

Facts gather() {
  Facts facts;
  facts.environment = launch::current_environment();
  facts.root = geteuid() == 0;
  facts.cpu = launch::detect_cpu();
  facts.cores = launch::allowed_cores();
  facts.machine_cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  facts.cgroup = launch::cgroup_limits();
  facts.memory = launch::memory();
  facts.caches = launch::caches();
  facts.limits = launch::limits();
  facts.blas = gather_blas(facts);
#if defined(LOCKSTEP_ASAN) || defined(LOCKSTEP_TSAN)
  const uint64_t cache_bytes = 0;  // their rate tells nothing, and a large cache takes them half a minute
#else
  const uint64_t cache_bytes = facts.caches.empty() ? 0 : facts.caches.back().bytes;
#endif
  const uint64_t addresses = facts.limits.address_space_bytes.value_or(UINT64_MAX);
  facts.copy = measure_copy_rate(cores_within(facts.cores, addresses), cache_bytes,
                                 std::min(facts.usable_memory(), addresses) / 4);
  facts.kernel = launch::kernel_features();
  facts.dev_shm = launch::dev_shm();
  facts.engines = {.gloo_problem = gloo_problem(), .mpirun_problem = mpirun_problem(facts.environment)};
  facts.network = gather_network();
  facts.slurm = find_on_path("scontrol", facts.environment);
  return facts;
}

}  // namespace lockstep::cli::doctor
