// Any bytes as an IDX file: a refusal by name, or values that fill their shape.
#include "train/data/idx.h"

#include "fuzz/fuzz.h"
#include "lockstep/error.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using lockstep::fuzz::require;
  try {
    const auto idx = lockstep::train::parse_idx({reinterpret_cast<const char*>(data), size}, "name");
    require(idx.shape.size() == 1 || idx.shape.size() == 3, "there are one or three dimensions");
    int64_t count = 1;
    for (const int64_t dimension : idx.shape) count *= dimension;
    require(count > 0 && idx.values.size() == static_cast<std::size_t>(count), "values fill their shape");
    require(size == 4 + 4 * idx.shape.size() + idx.values.size(), "no byte is left over");
  } catch (const lockstep::UsageError& refusal) {
    lockstep::fuzz::require_readable(refusal);
    require(std::string_view(refusal.what()).starts_with("name: "), "a refusal names the file");
  }
  return 0;
}
