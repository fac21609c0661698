#include "cli/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::cli {
namespace {

TEST(InterruptGuard, NotesTheFirstSignalThatAsksToStop) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const InterruptGuard guard;
    EXPECT_FALSE(InterruptGuard::interrupted());
    std::raise(signal);
    EXPECT_TRUE(InterruptGuard::interrupted());
    std::raise(signal == SIGINT ? SIGTERM : SIGINT);
    EXPECT_EQ(InterruptGuard::exit_code(), 128 + signal);
  }
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
