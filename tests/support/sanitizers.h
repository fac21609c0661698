#pragma once

// What the tests were built with. A sanitizer takes ten times as long for each claim: loops may be shorter
// there.
namespace lockstep::test {

#if defined(LOCKSTEP_TSAN)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

#if defined(LOCKSTEP_ASAN) || defined(LOCKSTEP_TSAN)
inline constexpr bool kSanitizer = true;
#else
inline constexpr bool kSanitizer = false;
#endif

}  // namespace lockstep::test
