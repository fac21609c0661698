// Any bytes as the text form of a plan: a refusal by line, or a plan that reads back and can be judged.
#include "fuzz/plan_checks.h"
#include "lockstep/error.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace plan = lockstep::plan;
  using lockstep::fuzz::require;
  plan::Plan parsed;
  try {
    parsed = plan::parse({reinterpret_cast<const char*>(data), size});
  } catch (const lockstep::UsageError& refusal) {
    lockstep::fuzz::require_readable(refusal);
    require(std::string_view(refusal.what()).starts_with("plan text line "), "a refusal names the line");
    return 0;
  }
  lockstep::fuzz::check_plan(parsed, plan::parse(plan::to_string(parsed)));
  return 0;
}
