#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/error.h"

namespace lockstep::transport {

constexpr int kMaxWorld = 1 << 16;
constexpr std::size_t kMaxBlobBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxTagBytes = 256;
constexpr std::size_t kMaxTextBytes = 16384;  ///< Of a failure or a refusal; longer ones are cut.

/// Bytes of a peer that are no message of the control plane.
struct FrameError : Error {
  using Error::Error;
};

/// A rank gives its blob to the gather named `tag`.
struct Gather {
  std::string tag;
  std::vector<int> members;  ///< Ascending.
  std::string blob;
  bool operator==(const Gather&) const = default;
};

/// A member's blob, passed on to the other members as it comes.
struct Gathered {
  std::string tag;
  int rank = 0;
  std::uint64_t group = 0;  ///< group_of() the members that it named.
  std::string blob;
  bool operator==(const Gathered&) const = default;
};

/// To rank 0: I have failed, or saw it. From rank 0: the job's first failure.
struct Failed {
  int peer = -1;
  std::string text;
  bool timeout = false;
  bool operator==(const Failed&) const = default;
};

/// A rank is done; the end of its connection is not its death. Rank 0 answers by closing.
struct Goodbye {
  bool operator==(const Goodbye&) const = default;
};

/// Another rank said goodbye.
struct Left {
  int rank = 0;
  bool operator==(const Left&) const = default;
};

/// All ranks have come: the end of a meeting.
struct Welcome {
  std::int64_t pid = 0;  ///< Of rank 0.
  bool operator==(const Welcome&) const = default;
};

/// The meeting has failed.
struct Refused {
  bool timeout = false;
  int peer = -1;
  std::string text;
  bool operator==(const Refused&) const = default;
};

using Message = std::variant<Gather, Gathered, Failed, Goodbye, Left, Welcome, Refused>;

/// A message's kind and content. Throws nothing that its limits above allow; longer texts are cut.
std::string encode(const Message& message);

/// The inverse. Throws FrameError unless `bytes` are exactly one message within the limits.
Message decode(std::string_view bytes);

}  // namespace lockstep::transport
