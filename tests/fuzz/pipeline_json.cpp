// Any JSON as the JSON form of a pipeline plan: a refusal by place, or a plan that reads back and can be
// judged.
#include "lockstep/plan/pipeline_json.h"

#include <string>

#include "fuzz/pipeline_checks.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace plan = lockstep::plan;
  const std::string text(reinterpret_cast<const char*>(data), size);
  plan::PipelinePlan read;
  try {
    read = plan::pipeline_from_json(text);
  } catch (const lockstep::UsageError& refusal) {
    lockstep::fuzz::require_readable(refusal);
    lockstep::fuzz::require(std::string_view(refusal.what()).starts_with("pipeline json "),
                            "a refusal names the place");
    return 0;
  }
  lockstep::fuzz::check_pipeline(read, plan::pipeline_from_json(plan::to_json(read)));
  return 0;
}
