// A job of ranks that a benchmark asks by turns.
#include "cli/asked_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/temporary_folder.h"
#include "lockstep/error.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;

AskedJob::Options shell_job(const TemporaryFolder& folder, const std::string& script) {
  return {.name = "echo",
          .folder = folder.path(),
          .command = LOCKSTEP_COMMAND,
          .program = {"sh", "-c", script},
          .world = 2,
          .environment = launch::current_environment()};
}

TEST(AskedJob, EveryRankAnswersEveryQuestionInItsPlace) {
  const TemporaryFolder folder;
  const std::string pipe = (folder.path() / "echo-$RANK").string();
  AskedJob job(shell_job(folder, "exec <" + pipe + ".question >" + pipe +
                                     ".answer; while read -r line; do echo \"[$RANK, $line]\"; done"));
  for (const int question : {7, 8}) {
    const auto answers = job.ask(question);
    ASSERT_EQ(answers.size(), 2U);
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_EQ(answers[static_cast<size_t>(rank)], nlohmann::json({rank, question}));
  }
}

TEST(AskedJob, TheEndOfARankIsAnErrorWithItsWords) {
  const TemporaryFolder folder;
  AskedJob job(shell_job(folder, "echo 'no such thing' >&2; exit 3"));
  try {
    job.ask("anything");
    FAIL() << "a job that ended answered";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("echo: its ranks ended early"));
    EXPECT_THAT(error.what(), HasSubstr("no such thing"));
  }
}

TEST(AskedJob, ARankThatDoesNotAnswerIsEnded) {
  const TemporaryFolder folder;
  AskedJob job(shell_job(folder, "exec sleep 1000"));
  EXPECT_THROW(job.ask("anything", std::chrono::seconds(1)), Error);
}

}  // namespace
}  // namespace lockstep::cli
