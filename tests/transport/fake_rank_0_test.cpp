// A rank that comes to somebody who only claims to be rank 0.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>

#include "lockstep/error.h"
#include "transport/control.h"
#include "transport/proof.h"
#include "transport/ranks.h"
#include "transport/raw.h"

namespace lockstep::test {
namespace {

using launch::UniqueFd;
using ::testing::HasSubstr;
using transport::meet_on_network;

/// A server that answers a rank's proof with `answer(proof)`.
std::string refusal_by(const std::function<std::string(const std::string&)>& answer) {
  int port = 0;
  const UniqueFd listener = listen_on_port(port);
  auto rank_1 = std::async(std::launch::async, [port] {
    return text_of<UsageError>([&] {
      meet_on_network({.rank = 1, .world = 2, .name = "job", .deadline = patience()},
                      network_at(port, "token"));
    });
  });
  const UniqueFd fd = accept_one(listener.get());
  send_bytes(fd.get(), transport::make_challenge(transport::random_nonce()));
  send_bytes(fd.get(), answer(receive_bytes(fd.get(), transport::kProofBytes)));
  return rank_1.get();
}

TEST(FakeRank0, ThatSendsBackTheProofIsRefused) {
  const std::string text = refusal_by([](const std::string& proof) {
    return transport::start_greeting(transport::Greeting::kAnswer) +
           proof.substr(proof.size() - sizeof(transport::Mac));
  });
  EXPECT_THAT(text, HasSubstr("did not prove that it knows this job's token"));
  EXPECT_THAT(refusal_by([](const std::string& proof) { return proof; }), HasSubstr("did not prove"));
}

/// What rank 1 says of a server that greets those who connect, one after the other, so.
std::string refusal_of(const std::vector<std::string>& greetings, int& port) {
  const UniqueFd listener = listen_on_port(port);
  auto rank_1 = std::async(std::launch::async, [port] {
    return text_of<UsageError>([&] {
      meet_on_network({.rank = 1, .world = 2, .name = "job", .deadline = patience()},
                      network_at(port, "token"));
    });
  });
  std::vector<UniqueFd> accepted;
  for (const std::string& greeting : greetings) {
    accepted.push_back(accept_one(listener.get()));
    send_bytes(accepted.back().get(), greeting);
  }
  return rank_1.get();
}

const std::string kOtherProtocol = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n";

TEST(FakeRank0, ThatSpeaksAnotherProtocolIsNamed) {
  int port = 0;
  const std::string text = refusal_of({kOtherProtocol}, port);
  EXPECT_THAT(text, HasSubstr(fmt::format(
                        "what listens on 127.0.0.1:{} is not rank 0 of a Lockstep job; hint: ", port)));
}

TEST(FakeRank0, ThatIsFullIsAskedAgain) {
  int port = 0;
  const std::string busy = transport::start_greeting(transport::Greeting::kBusy);
  EXPECT_THAT(refusal_of({busy, busy, kOtherProtocol}, port), HasSubstr("is not rank 0 of a Lockstep job"));
}

}  // namespace
}  // namespace lockstep::test
