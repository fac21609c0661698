// metrics.jsonl: each step once, in order, whatever was killed, torn or damaged.
#include "train/run/metrics.h"
#include "support/child.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "lockstep/error.h"
#include "support/temporary_folder.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

// Distinct in every step and field.
StepMetrics metrics_of(int64_t step) {
  const auto x = static_cast<double>(step);
  return {.step = step,
          .loss = 1 / x,
          .lr = 1e-3 * x,
          .tokens_per_s = 8192 + x,
          .gradient_norm = std::sqrt(x),
          .exposed_ms = step % 3 == 0 ? std::numeric_limits<double>::quiet_NaN() : x / 7};
}

std::string lines(int64_t first, int64_t last) {
  std::string text;
  for (int64_t step = first; step <= last; ++step) text += to_line(metrics_of(step));
  return text;
}

std::string text_of(const std::vector<StepMetrics>& steps) {
  std::string text;
  for (const StepMetrics& step : steps) text += to_line(step);
  return text;
}

class Metrics : public testing::Test {
 protected:
  // Resumes behind `last_step` and goes on to step `end`.
  void run(int64_t last_step, int64_t end) const {
    MetricsFile metrics(file_, last_step);
    for (int64_t step = last_step + 1; step <= end; ++step) metrics.append(metrics_of(step));
  }

  TemporaryFolder folder_;
  fs::path file_ = folder_ / "metrics.jsonl";
};

TEST(MetricsLine, IsOneLineOfJson) {
  EXPECT_EQ(to_line({.step = 12,
                     .loss = 2.25,
                     .lr = 1e-3,
                     .tokens_per_s = 8192,
                     .gradient_norm = 0.1,
                     .exposed_ms = 1e300}),
            "{\"step\":12,\"loss\":2.25,\"lr\":0.001,\"tokens_per_s\":8192,\"gradient_norm\":0.1,"
            "\"exposed_ms\":1e+300}\n");
}

TEST(MetricsLine, HasNullForWhatIsNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(to_line({.step = 1, .loss = std::nan(""), .lr = kInfinity, .tokens_per_s = -kInfinity}),
            "{\"step\":1,\"loss\":null,\"lr\":null,\"tokens_per_s\":null,\"gradient_norm\":0,"
            "\"exposed_ms\":0}\n");
}

TEST_F(Metrics, ReadBackToTheSameBitsByUsAndByAnyReaderOfJson) {
  std::mt19937_64 random(5);
  std::vector<StepMetrics> written;
  const auto any = [&] {
    double value = std::nan("");
    while (!std::isfinite(value)) value = std::bit_cast<double>(random());
    return value;
  };
  for (int64_t step = 1; step <= 3000; ++step) {
    written.push_back({.step = step * (int64_t{1} << 50),
                       .loss = any(),
                       .lr = std::numeric_limits<double>::denorm_min() * static_cast<double>(step),
                       .tokens_per_s = -0.0,
                       .gradient_norm = std::numeric_limits<double>::max(),
                       .exposed_ms = static_cast<double>(random() % 1000) / 100});
  }
  test::write_file(file_, text_of(written));
  const auto found = read_metrics(file_);
  ASSERT_EQ(found.size(), written.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const auto json = nlohmann::json::parse(to_line(written[i]));
    EXPECT_EQ(found[i].step, written[i].step);
    EXPECT_EQ(json["step"], written[i].step);
    for (const auto& [name, member] : {std::pair{"loss", &StepMetrics::loss},
                                       {"lr", &StepMetrics::lr},
                                       {"tokens_per_s", &StepMetrics::tokens_per_s},
                                       {"gradient_norm", &StepMetrics::gradient_norm},
                                       {"exposed_ms", &StepMetrics::exposed_ms}}) {
      EXPECT_EQ(std::bit_cast<uint64_t>(found[i].*member), std::bit_cast<uint64_t>(written[i].*member));
      EXPECT_EQ(json[name].get<double>(), written[i].*member) << name;
    }
  }
}

TEST_F(Metrics, WhatWasNotFiniteReadsAsNaN) {
  test::write_file(file_, to_line({.step = 1, .loss = std::numeric_limits<double>::infinity()}));
  EXPECT_TRUE(std::isnan(read_metrics(file_).at(0).loss));
}

TEST_F(Metrics, BeginAnewWithStepZero) {
  test::write_file(file_, "of another time, and no metrics at all\n");
  run(0, 2);
  EXPECT_EQ(test::read_file(file_), lines(1, 2));
}

// A process may be killed after any byte, and the checkpoint that it left may be of any step up to its last.
TEST_F(Metrics, AreThoseOfAnUninterruptedRunWhereverItWasCut) {
  const std::string whole = lines(1, 3);
  for (size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    const std::string left = whole.substr(0, bytes);
    for (int64_t last_step = 0; last_step <= std::ranges::count(left, '\n'); ++last_step) {
      test::write_file(file_, left);
      run(last_step, 3);
      ASSERT_EQ(test::read_file(file_), whole) << bytes << " bytes, last step " << last_step;
    }
  }
}

TEST_F(Metrics, SurviveTheKillOfTheirProcess) {
  for (int64_t least = 1; least <= 3; ++least) {
    const pid_t child = fork();
    if (child == 0) {
      [&]() noexcept { run(least - 1, 1'000'000); }();
      _exit(1);
    }
    int status = 0;
    const auto size = [&] { return fs::exists(file_) ? fs::file_size(file_) : 0; };
    while (size() < lines(1, least + 50).size()) {
      ASSERT_EQ(waitpid(child, &status, WNOHANG), 0) << "it ended by itself";
    }
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const auto steps = static_cast<int64_t>(read_metrics(file_).size());
    ASSERT_EQ(text_of(read_metrics(file_)), lines(1, steps));
    run(steps / 2, steps + 5);
    ASSERT_EQ(test::read_file(file_), lines(1, steps + 5));
  }
}

TEST_F(Metrics, BehindTheLastStepAreCutAwayUnread) {
  test::write_file(file_, lines(1, 3) + "damage\n" + lines(4, 5));
  run(3, 4);
  EXPECT_EQ(test::read_file(file_), lines(1, 4));
}

TEST_F(Metrics, OfStepsThatTheFileLacksStayMissing) {
  run(3, 4);
  EXPECT_EQ(test::read_file(file_), lines(4, 4));
  run(7, 8);
  EXPECT_EQ(test::read_file(file_), lines(4, 4) + lines(8, 8));
  run(6, 6);
  EXPECT_EQ(test::read_file(file_), lines(4, 4)) << "step 8 comes after step 6, which is missing";
}

TEST_F(Metrics, TornLastLineIsLeftOutWhateverItsLengthAndBytes) {
  for (const std::string& torn : {std::string("{"), to_line(metrics_of(3)).substr(0, 40),
                                  std::string(511, 'x'), std::string(512, 'x'), std::string(100'000, '\0')}) {
    test::write_file(file_, lines(1, 2) + torn);
    EXPECT_EQ(text_of(read_metrics(file_)), lines(1, 2));
    run(2, 3);
    EXPECT_EQ(test::read_file(file_), lines(1, 3));
  }
}

TEST_F(Metrics, RefuseADamagedLineByFileAndLine) {
  const std::string good = to_line(metrics_of(2));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string line = good;
    return line.replace(line.find(from), from.size(), to);
  };
  for (const std::string& line : {std::string("\n"),
                                  std::string("{}\n"),
                                  " " + good,
                                  with("}", "} "),
                                  with("}", "},"),
                                  with("}", "}\r"),
                                  with("\"step\":2", "\"step\":02"),
                                  with("\"step\":2", "\"step\":+2"),
                                  with("\"step\":2", "\"step\":2.0"),
                                  with("\"step\":2", "\"step\":9223372036854775808"),
                                  with("\"step\":2", "\"step\":null"),
                                  with("\"step\":2", "\"step\": 2"),
                                  with("0.5", "0.50"),
                                  with("0.5", "5e-1"),
                                  with("0.5", ".5"),
                                  with("0.5", "nan"),
                                  with("0.5", "inf"),
                                  with("0.5", "1e999"),
                                  with("0.5", "\"0.5\""),
                                  with("0.5", ""),
                                  with("0.5", "0x1p-1"),
                                  with("loss", "Loss"),
                                  with(",\"lr\"", ",\"lr\":1,\"lr\""),
                                  with("\"loss\":0.5,", ""),
                                  with("}", std::string("\0}", 2)),
                                  std::string(510, 'x') + "\n",
                                  std::string(511, 'x') + "\n",
                                  std::string(512, 'x') + "\n",
                                  std::string(100'000, 'x') + "\n"}) {
    const std::string text = lines(1, 1) + line + lines(3, 3);
    test::write_file(file_, text);
    const auto refusal = ThrowsMessage<UsageError>(
        AllOf(StartsWith(fmt::format("metrics {} line 2: '", file_.string())),
              HasSubstr("is no line of metrics"), HasSubstr("; hint: move the file away")));
    EXPECT_THAT([&] { read_metrics(file_); }, refusal) << line;
    EXPECT_THAT([&] { MetricsFile(file_, 3); }, refusal) << line;
    EXPECT_EQ(test::read_file(file_), text) << "a refused file stays as it is";
  }
}

TEST_F(Metrics, RefuseStepsThatAreNotInOrder) {
  const auto refused = [&](const std::string& text, const std::string& reason) {
    test::write_file(file_, text);
    EXPECT_THAT([&] { read_metrics(file_); }, ThrowsMessage<UsageError>(HasSubstr(reason)));
    EXPECT_THAT([&] { MetricsFile(file_, 10); }, ThrowsMessage<UsageError>(HasSubstr(reason)));
  };
  refused(lines(1, 2) + lines(2, 3), " line 3: step 2 is not above 2");
  refused(lines(4, 5) + lines(1, 1), " line 3: step 1 is not above 5");
  refused(to_line({.step = 0}), " line 1: step 0 is not above 0");
  refused(to_line({.step = -3}), " line 1: step -3 is not above 0");
}

TEST_F(Metrics, AreAppendedInOrderOnly) {
  EXPECT_THROW(MetricsFile(file_, -1), UsageError);
  MetricsFile metrics(file_, 0);
  metrics.append(metrics_of(1));
  metrics.append(metrics_of(2));
  EXPECT_THAT(
      [&] { metrics.append(metrics_of(2)); },
      ThrowsMessage<UsageError>(HasSubstr("metrics.jsonl: step 2 after step 2; hint: each step once")));
  EXPECT_EQ(test::read_file(file_), lines(1, 2));
}

TEST_F(Metrics, RefuseWhatIsNoFile) {
  EXPECT_THAT([&] { read_metrics(file_); },
              ThrowsMessage<UsageError>(HasSubstr("metrics.jsonl: cannot be read: No such file")));
  EXPECT_THAT([&] { read_metrics(folder_.path()); },
              ThrowsMessage<UsageError>(HasSubstr("it is no regular file")));
  EXPECT_THAT([&] { MetricsFile("/dev/zero", 1); },
              ThrowsMessage<UsageError>(HasSubstr("it is no regular file")));
  EXPECT_THAT(
      [&] { MetricsFile(folder_ / "no/metrics.jsonl", 1); },
      ThrowsMessage<Error>(AllOf(StartsWith("cannot write "), HasSubstr("No such file or directory"))));
}

}  // namespace
}  // namespace lockstep::train
