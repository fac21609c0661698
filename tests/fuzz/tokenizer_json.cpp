// Any text as the JSON form of a tokenizer: a refusal by place, or a tokenizer that reads back to itself and
// loses no byte.
#include <numeric>

#include "fuzz/fuzz.h"
#include "lockstep/error.h"
#include "lockstep/train/data/tokenizer.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using lockstep::Tokenizer;
  using lockstep::fuzz::require;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Tokenizer tokenizer = Tokenizer::parse(text);
    require(Tokenizer::parse(tokenizer.to_json()).to_json() == tokenizer.to_json(),
            "it reads back to itself");
    std::vector<int32_t> tokens(static_cast<size_t>(tokenizer.vocab_size()));
    std::iota(tokens.begin(), tokens.end(), 0);
    const std::string all = tokenizer.decode(tokens);
    require(tokenizer.decode(tokenizer.encode(all)) == all, "no byte is lost");
    // Perhaps foreign characters.
    require(tokenizer.decode(tokenizer.encode(text)) == text, "no byte of any text is lost");
  } catch (const lockstep::UsageError& refusal) {
    lockstep::fuzz::require_readable(refusal);
    const std::string_view reason = refusal.what();
    require(reason.starts_with("tokenizer json") || reason.starts_with("Tokenizer: byte"),
            "a refusal names the place");
  }
  return 0;
}
