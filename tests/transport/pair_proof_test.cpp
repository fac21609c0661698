// Who may stand in for a rank on an engine that takes whoever connects first: nobody.
#include "transport/pair_proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "lockstep/error.h"
#include "transport/ranks.h"
#include "transport/star.h"

namespace lockstep::test {
namespace {

using ::testing::HasSubstr;
using transport::Wire;

/// The memory of a message; it has come.
struct Arrived final : Wire::Post {
  bool wait_for(std::chrono::nanoseconds) override { return true; }
  size_t moved() const override { return 1; }
};

/// Every peer is a stranger that sends back, as its own proof, what it was sent.
class EchoWire final : public Wire {
 public:
  bool moves_in_calls_only() const override { return false; }
  std::unique_ptr<Post> send(int to, uint64_t, const void* data, size_t bytes) override {
    sent_[to].assign(static_cast<const char*>(data), bytes);
    return std::make_unique<Arrived>();
  }
  std::unique_ptr<Post> receive(int from, uint64_t, void* data, size_t bytes) override {
    std::memcpy(data, sent_.at(from).data(), bytes);
    return std::make_unique<Arrived>();
  }

 private:
  std::map<int, std::string> sent_;
};

/// The wire of `rank` to itself under another rank's name: whoever knows the key can stand in for all.
class LoopWire final : public Wire {
 public:
  explicit LoopWire(std::map<std::pair<int, int>, std::string>& messages, int rank)
      : messages_(messages), rank_(rank) {}
  bool moves_in_calls_only() const override { return false; }
  std::unique_ptr<Post> send(int to, uint64_t, const void* data, size_t bytes) override {
    messages_[{rank_, to}].assign(static_cast<const char*>(data), bytes);
    return std::make_unique<Arrived>();
  }
  std::unique_ptr<Post> receive(int from, uint64_t, void* data, size_t bytes) override {
    if (const auto found = messages_.find({from, rank_}); found != messages_.end()) {
      std::memcpy(data, found->second.data(), bytes);
    }
    return std::make_unique<Arrived>();
  }

 private:
  std::map<std::pair<int, int>, std::string>& messages_;
  const int rank_;
};

TEST(PairProof, AStrangerThatSendsBackTheProofIsRefused) {
  const auto control = transport::make_lone_control();
  for (const int rank : {0, 1}) {
    EchoWire wire;
    EXPECT_EQ(text_of<PeerError>(
                  [&] { prove_pairs(wire, *control, rank, 2, transport::key_of("secret"), patience()); }),
              fmt::format("connecting on rank {}: what answers in place of rank {} does not know this job's "
                          "secret; hint: a stranger took its connection; start the job again",
                          rank, 1 - rank));
  }
}

TEST(PairProof, AProofHoldsForItsPairAloneAndWithItsKeyAlone) {
  // Rank 0's proofs to ranks 1 and 2, made with the right key, and handed to rank 1 as if by others.
  const auto control = transport::make_lone_control();
  std::map<std::pair<int, int>, std::string> messages;
  const auto prove = [&](int rank, const std::string& secret) {
    LoopWire wire(messages, rank);
    return text_of<PeerError>(
        [&] { prove_pairs(wire, *control, rank, 3, transport::key_of(secret), patience()); });
  };
  EXPECT_THAT(prove(0, "secret"), HasSubstr("in place of rank 1")) << "nobody has sent to it yet";
  prove(1, "secret");
  prove(2, "secret");
  EXPECT_EQ(prove(0, "secret"), "");
  EXPECT_EQ(prove(1, "secret"), "");
  EXPECT_THAT(prove(2, "Secret"), HasSubstr("in place of rank 0"));
  prove(2, "secret");
  messages[{2, 1}] = messages[{0, 1}];
  EXPECT_THAT(prove(1, "secret"), HasSubstr("in place of rank 2"));
  messages[{2, 1}] = messages[{2, 0}];
  EXPECT_THAT(prove(1, "secret"), HasSubstr("in place of rank 2"));
}

}  // namespace
}  // namespace lockstep::test
