// Any bytes as SLURM's tasks per node: a refusal, or a bounded list of positive counts that expands to
// itself.
#include <string>

#include "fuzz/fuzz.h"
#include "launch/hostlist.h"
#include "lockstep/error.h"

namespace {

using lockstep::fuzz::require;

void check(const std::vector<int>& tasks) {
  require(!tasks.empty() && tasks.size() <= lockstep::launch::kMaxHosts, "the number of nodes is bounded");
  std::string joined;
  for (const int count : tasks) {
    require(count >= 1, "every node has a task");
    joined += (joined.empty() ? "" : ",") + std::to_string(count);
  }
  require(lockstep::launch::expand_tasks_per_node(joined) == tasks, "expanded counts expand to themselves");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(lockstep::launch::expand_tasks_per_node(text));
  } catch (const lockstep::UsageError& refusal) {
    lockstep::fuzz::require_readable(refusal);
  }
  return 0;
}
