// Any bytes as a hostlist: a refusal, or a bounded list of plain names that expands to itself.
#include "launch/hostlist.h"

#include <algorithm>

#include "fuzz/fuzz.h"
#include "lockstep/error.h"

namespace {

using lockstep::fuzz::require;

constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

void check(const std::vector<std::string>& hosts) {
  require(!hosts.empty() && hosts.size() <= lockstep::launch::kMaxHosts, "the number of hosts is bounded");
  std::string joined;
  for (const std::string& host : hosts) {
    require(!host.empty() && host.size() <= lockstep::launch::kMaxHostLength,
            "the length of a name is bounded");
    require(host.find_first_not_of(kNameCharacters) == std::string::npos, "a name is plain");
    joined += (joined.empty() ? "" : ",") + host;
  }
  require(lockstep::launch::expand_hostlist(joined) == hosts, "expanded names expand to themselves");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(lockstep::launch::expand_hostlist(text));
  } catch (const lockstep::UsageError& refusal) {
    lockstep::fuzz::require_readable(refusal);
  }
  return 0;
}
