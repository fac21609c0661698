// Any text as the index of a model's files: a refusal, or an index that reads back.
#include "fuzz/fuzz.h"
#include "lockstep/error.h"
#include "train/checkpoint/index.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace train = lockstep::train;
  using lockstep::fuzz::require;
  train::WeightsIndex index;
  try {
    index = train::parse_weights_index({reinterpret_cast<const char*>(data), size}, "an index");
  } catch (const lockstep::Error& refusal) {
    lockstep::fuzz::require_readable(refusal);
    require(std::string_view(refusal.what()).starts_with("an index: "), "a refusal names the file");
    return 0;
  }
  require(
      train::parse_weights_index(train::weights_index(index.file_of, index.total_bytes), "again") == index,
      "an index reads back to itself");
  return 0;
}
