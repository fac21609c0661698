#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/build_info.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "lockstep/version.h"
#include "transport/engines.h"

namespace lockstep::cli {

namespace {

// Read at build time: LibTorch is not loaded.
constexpr std::string_view kTorch = LOCKSTEP_TORCH_VERSION;

void print_versions() {
  fmt::print("lockstep {}\nlibtorch {}\n", LOCKSTEP_VERSION, kTorch.empty() ? "not built" : kTorch);
  for (const auto& engine : transport::engines()) {
    const std::string_view state = !engine.built            ? "not built"
                                   : engine.version.empty() ? "built in"
                                                            : engine.version;
    fmt::print("engine {} {}\n", engine.name, state);
  }
}

nlohmann::json to_json() {
  auto engines = nlohmann::json::array();
  for (const auto& engine : transport::engines()) {
    engines.push_back({{"name", engine.name}, {"built", engine.built}, {"version", engine.version}});
  }
  return {{"lockstep", LOCKSTEP_VERSION}, {"libtorch", kTorch}, {"engines", std::move(engines)}};
}

}  // namespace

Action define_version(Flags flags) {
  const auto json = std::make_shared<JsonOutput>();
  json->add_to(flags);
  return [json](const Invocation&) {
    if (json->prints_text()) print_versions();
    json->write(to_json());
    return 0;
  };
}

}  // namespace lockstep::cli
