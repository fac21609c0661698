// The bytes that ranks send each other.
#include "transport/frames.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/bytes.h"
#include "transport/gatherings.h"
#include "transport/io.h"
#include "transport/proof.h"
#include "transport/ranks.h"

namespace lockstep::test {
namespace {

using namespace transport;  // NOLINT: it is what is tested
using ::testing::HasSubstr;

const std::vector<Message> kMessages = {
    Gather{"tag", {0, 2, 65535}, std::string("blob\0", 5)},
    Gathered{"tag", 3, 0x1122334455667788, ""},
    Failed{-1, "why"},
    Failed{2, "late", true},
    Goodbye{},
    Left{4},
    Welcome{4711},
    Refused{true, 1, "no"},
};

TEST(Frames, ComeBackWhole) {
  for (const Message& message : kMessages) EXPECT_EQ(decode(encode(message)), message);
}

TEST(Frames, MayComeInAnyPieces) {
  std::string stream;
  for (const Message& message : kMessages) stream += to_frame(message);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, stream.size()}) {
    FrameParser parser(frame_limit(3));
    std::vector<Message> found;
    for (std::size_t i = 0; i < stream.size(); i += piece) {
      parser.feed(std::string_view(stream).substr(i, piece));
      while (auto message = parser.next()) found.push_back(std::move(*message));
    }
    EXPECT_EQ(found, kMessages);
  }
}

TEST(Frames, ALengthOverTheLimitIsRefusedBeforeItsContentComes) {
  FrameParser parser(frame_limit(3));
  parser.feed("\xff\xff\xff\xff");
  EXPECT_THAT(text_of<FrameError>([&] { parser.next(); }),
              HasSubstr("a frame of 4294967295 bytes, at most 1049612 allowed"));
}

TEST(Frames, ALengthAtTheLimitIsAcceptedAndOneMoreIsNot) {
  const auto header = [](std::size_t length) {
    std::string bytes;
    put_number(bytes, static_cast<std::uint32_t>(length));
    return bytes;
  };
  EXPECT_EQ(frame_length(header(1000), 1000), 1000u);
  EXPECT_THROW(frame_length(header(1001), 1000), FrameError);
  FrameParser parser(1000);
  parser.feed(header(1000));
  EXPECT_FALSE(parser.next().has_value()) << "its content has not come";
  FrameParser strict(1000);
  strict.feed(header(1001));
  EXPECT_THROW(strict.next(), FrameError);
}

TEST(Frames, TheLargestGatherFitsAndNoPartOfItMayBeLarger) {
  for (const int world : {1, 3, kMaxWorld}) {
    const Gather largest{std::string(kMaxTagBytes, 't'), all_of(world), std::string(kMaxBlobBytes, 'b')};
    FrameParser parser(frame_limit(world));
    parser.feed(to_frame(largest));
    EXPECT_TRUE(parser.next() == Message(largest)) << world;
  }
  EXPECT_THROW(decode(encode(Gather{std::string(kMaxTagBytes + 1, 't'), {0}, ""})), FrameError);
  EXPECT_THROW(decode(encode(Gather{"t", {0}, std::string(kMaxBlobBytes + 1, 'b')})), FrameError);
  EXPECT_NO_THROW(decode(encode(Left{kMaxWorld - 1})));
  EXPECT_THROW(decode(encode(Left{kMaxWorld})), FrameError);
}

TEST(Frames, WhatIsNoMessageIsRefused) {
  for (const Message& message : kMessages) {
    const std::string bytes = encode(message);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_THROW(decode(std::string_view(bytes).substr(0, size)), FrameError);
    }
    EXPECT_THAT(text_of<FrameError>([&] { decode(bytes + "x"); }), HasSubstr("1 bytes follow"));
  }
  EXPECT_THAT(text_of<FrameError>([] { decode("\x63"); }), HasSubstr("no message of kind 99"));
  EXPECT_THROW(decode(encode(Gather{"tag", {1, 1}, ""})), FrameError);
  EXPECT_THROW(decode(encode(Gather{std::string(257, 't'), {1}, ""})), FrameError);
  EXPECT_THROW(decode(encode(Left{-1})), FrameError);
}

TEST(Frames, ALongFailureIsCut) {
  const Message cut = decode(encode(Failed{0, std::string(100000, 'x')}));
  EXPECT_EQ(std::get<Failed>(cut).text.size(), kMaxTextBytes);
}

class Proof : public ::testing::Test {
 protected:
  Key key = key_of("token");
  Nonce nonce_0 = random_nonce();
  Nonce nonce_1 = random_nonce();
  Claim claim = {.rank = 1, .world = 2, .pid = 4711, .name = digest("job")};
  std::string proof = make_proof(key, nonce_0, nonce_1, claim);
};

TEST_F(Proof, HoldsBothWays) {
  const auto proved = check_proof(proof, key, nonce_0);
  ASSERT_TRUE(proved.has_value());
  EXPECT_EQ(proved->claim, claim);
  EXPECT_TRUE(check_answer(proved->answer, key, nonce_0, nonce_1, claim));
}

TEST_F(Proof, IsTheHmacThatAnotherProgramComputes) {
  // Python: hmac.new(blake2b(b"token", digest_size=32).digest(), statement, "sha512").digest()[:32]
  nonce_0.fill(7);
  nonce_1.fill(9);
  proof = make_proof(key, nonce_0, nonce_1, claim);
  std::string hex;
  for (const char byte : proof.substr(proof.size() - sizeof(Mac))) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  EXPECT_EQ(hex, "95d4905f0557b70a46b484008b3a685fc70d3d620ee7abd98260451a873dbe78");
}

TEST_F(Proof, DoesNotHoldWithOneBitChanged) {
  for (std::size_t bit = 0; bit < 8 * proof.size(); ++bit) {
    std::string changed = proof;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(check_proof(changed, key, nonce_0).has_value()) << bit;
  }
}

TEST_F(Proof, DoesNotHoldForAnotherChallengeOrToken) {
  EXPECT_FALSE(check_proof(proof, key, random_nonce()).has_value());
  EXPECT_FALSE(check_proof(proof, key_of("Token"), nonce_0).has_value());
}

TEST_F(Proof, SentBackIsNoAnswer) {
  const std::string mac = proof.substr(proof.size() - sizeof(Mac));
  EXPECT_FALSE(check_answer(start_greeting(Greeting::kAnswer) + mac, key, nonce_0, nonce_1, claim));
  EXPECT_FALSE(check_answer(start_greeting(Greeting::kAnswer) + mac, key, nonce_1, nonce_0, claim));
}

TEST_F(Proof, AnAnswerIsNoProof) {
  const std::string answer = check_proof(proof, key, nonce_0)->answer;
  std::string forged = proof.substr(0, proof.size() - sizeof(Mac)) + answer.substr(kGreetingBytes);
  EXPECT_FALSE(check_proof(forged, key, nonce_0).has_value());
}

TEST(SecondsText, HasTenthsIfTheyMatter) {
  EXPECT_EQ(seconds_text(std::chrono::milliseconds(59970)), "60 s");
  EXPECT_EQ(seconds_text(std::chrono::milliseconds(499)), "0.5 s");
  EXPECT_EQ(seconds_text(std::chrono::seconds(1800)), "1800 s");
  EXPECT_EQ(seconds_text(std::chrono::seconds(-1)), "0 s");
}

TEST(NameRanks, ReadsLikeText) {
  EXPECT_EQ(name_ranks({3}), "rank 3");
  EXPECT_EQ(name_ranks({3, 4}), "ranks 3 and 4");
  EXPECT_EQ(name_ranks({3, 4, 9}), "ranks 3, 4 and 9");
  EXPECT_THAT(name_ranks(all_of(100)), HasSubstr(", 15 and 84 more"));
}

}  // namespace
}  // namespace lockstep::test
