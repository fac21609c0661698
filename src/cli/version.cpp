#include "cli/version.h"

#include <fmt/format.h>

#include <string_view>

#include "cli/build_info.h"
#include "lockstep/version.h"
#include "transport/engines.h"

namespace lockstep::cli {

std::string version_text() {
  const std::string_view torch = LOCKSTEP_TORCH_VERSION;
  std::string text =
      fmt::format("lockstep {}\nlibtorch {}\n", LOCKSTEP_VERSION, torch.empty() ? "not built" : torch);
  for (const auto& engine : transport::engines()) {
    const std::string_view state = !engine.built            ? "not built"
                                   : engine.version.empty() ? "built in"
                                                            : engine.version;
    text += fmt::format("engine {} {}\n", engine.name, state);
  }
  return text;
}

}  // namespace lockstep::cli
