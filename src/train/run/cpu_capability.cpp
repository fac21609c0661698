#include "train/run/cpu_capability.h"

#include <ATen/Version.h>

namespace lockstep::train {

std::string cpu_capability() {
  // at::get_cpu_capability() came with LibTorch 2; 1.13 tells it in this text only.
  const std::string text = at::show_config();
  const std::string label = "CPU capability usage: ";
  const auto start = text.find(label);
  if (start == std::string::npos) return "";
  const auto first = start + label.size();
  return text.substr(first, text.find('\n', first) - first);
}

}  // namespace lockstep::train
