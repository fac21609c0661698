#include "cli/bench_hello.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/build_info.h"

namespace lockstep::cli {

nlohmann::json bench_hello() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) cpus.push_back(cpu);
  }
  const char* coretype = std::getenv("OPENBLAS_CORETYPE");
  return {{"version", LOCKSTEP_TORCH_VERSION},
          {"threads", at::get_num_threads()},
          {"cpus", cpus},
          {"coretype", coretype == nullptr ? "" : coretype}};
}

}  // namespace lockstep::cli
