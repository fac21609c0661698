// Any bytes as the text form of a pipeline plan, and as the CSV form: a refusal by line, or a plan that reads
// back and can be judged.
#include "lockstep/plan/pipeline_text.h"

#include "fuzz/pipeline_checks.h"

namespace {

template <typename Read, typename Write>
void check_form(const char* refusal_start, const Read& read, const Write& write) {
  lockstep::plan::PipelinePlan plan;
  try {
    plan = read();
  } catch (const lockstep::UsageError& refusal) {
    lockstep::fuzz::require_readable(refusal);
    lockstep::fuzz::require(std::string_view(refusal.what()).starts_with(refusal_start),
                            "a refusal names the line");
    return;
  }
  lockstep::fuzz::check_pipeline(plan, write(plan));
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace plan = lockstep::plan;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_form(
      "pipeline text line ", [&] { return plan::parse_pipeline(text); },
      [](const auto& read) { return plan::parse_pipeline(plan::to_string(read)); });
  check_form(
      "pipeline csv line ", [&] { return plan::pipeline_from_csv(text); },
      [](const auto& read) { return plan::pipeline_from_csv(plan::to_csv(read)); });
  return 0;
}
