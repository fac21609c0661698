// Any bytes, in pieces, as the control plane's frames and as what strangers send before they are known: a
// refusal, or messages that encode to the same bytes.
#include "transport/frames.h"

#include <algorithm>

#include "fuzz/fuzz.h"
#include "transport/gatherings.h"
#include "transport/proof.h"

namespace {

using namespace lockstep::transport;  // NOLINT: it is what is tested
using lockstep::fuzz::require;

constexpr int kWorld = 5;

/// The stream's first byte is the size of the pieces.
void check_frames(std::string_view stream, std::size_t piece) {
  FrameParser parser(frame_limit(kWorld));
  Gatherings gatherings(kWorld);
  std::string_view rest = stream;
  try {
    for (std::size_t i = 0; i < stream.size(); i += piece) {
      parser.feed(stream.substr(i, piece));
      while (const auto message = parser.next()) {
        const std::string frame = to_frame(*message);
        require(rest.starts_with(frame), "a message encodes to the bytes that it came as");
        rest.remove_prefix(frame.size());
        if (const auto* gather = std::get_if<Gather>(&*message))
          gatherings.give(gather->members.empty() ? 0 : gather->members[0], *gather);
      }
    }
  } catch (const FrameError& refusal) {
    lockstep::fuzz::require_readable(refusal);
  }
}

void check_greetings(std::string_view bytes) {
  static const Key key = key_of("token");
  Nonce nonce_0;
  nonce_0.fill(7);
  if (const auto claim = read_hello(bytes))
    require(make_hello(*claim) == bytes, "a hello is made of its claim");
  if (const auto nonce = read_challenge(bytes)) {
    require(make_challenge(*nonce) == bytes, "a challenge is made of its nonce");
    require(!check_answer(bytes, key, nonce_0, *nonce, {}), "a challenge is no answer");
  }
  if (const auto proved = check_proof(bytes, key, nonce_0)) {
    Nonce nonce_r;
    std::copy_n(bytes.begin() + kGreetingBytes, nonce_r.size(), nonce_r.begin());
    require(make_proof(key, nonce_0, nonce_r, proved->claim) == bytes,
            "a proof holds for its own bytes alone");
    require(check_answer(proved->answer, key, nonce_0, nonce_r, proved->claim),
            "the answer to a proof holds");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_greetings(bytes);
  if (!bytes.empty()) check_frames(bytes.substr(1), std::max<std::size_t>(data[0], 1));
  return 0;
}
