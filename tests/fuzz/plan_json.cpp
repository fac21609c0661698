// Any JSON as the JSON form of a plan: a refusal by place, or a plan that reads back and can be judged.
#include <string>

#include "fuzz/plan_checks.h"
#include "lockstep/error.h"
#include "lockstep/plan/json.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace plan = lockstep::plan;
  using lockstep::fuzz::require;
  const std::string text(reinterpret_cast<const char*>(data), size);
  plan::Plan read;
  try {
    read = plan::plan_from_json(text);
  } catch (const lockstep::UsageError& refusal) {
    lockstep::fuzz::require_readable(refusal);
    require(std::string_view(refusal.what()).starts_with("plan json "), "a refusal names the place");
    return 0;
  }
  lockstep::fuzz::check_plan(read, plan::plan_from_json(plan::to_json(read)));
  return 0;
}
