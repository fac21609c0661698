#include "cli/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::cli {
namespace {

TEST(InterruptGuard, NotesTheFirstCtrlC) {
  const InterruptGuard guard;
  EXPECT_FALSE(InterruptGuard::interrupted());
  std::raise(SIGINT);
  EXPECT_TRUE(InterruptGuard::interrupted());
}

TEST(InterruptGuard, ForgetsWhatAnEarlierGuardNoted) {
  {
    const InterruptGuard earlier;
    std::raise(SIGINT);
  }
  const InterruptGuard guard;
  EXPECT_FALSE(InterruptGuard::interrupted());
}

TEST(InterruptGuardDeathTest, TheSecondCtrlCEndsTheProcess) {
  EXPECT_EXIT(
      {
        const InterruptGuard guard;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(InterruptGuardDeathTest, AnIgnoredCtrlCStaysIgnored) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_IGN);
        {
          const InterruptGuard guard;
          std::raise(SIGINT);
          if (InterruptGuard::interrupted()) std::_Exit(1);
        }
        std::raise(SIGINT);
        std::_Exit(7);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace lockstep::cli
