#include "comms/copy.h"

#include <cstdint>
#include <cstring>

// Sanitizers do not see streaming stores.
#if defined(__SSE2__) && !defined(LOCKSTEP_PORTABLE) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_STREAMS
#include <emmintrin.h>
#endif

namespace lockstep::comms {

std::size_t least_streamed_bytes() {
#ifdef LOCKSTEP_STREAMS
  return std::size_t{1} << 20;
#else
  return SIZE_MAX;
#endif
}

void stream(void* to, const void* from, std::size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
#ifdef LOCKSTEP_STREAMS
  constexpr std::size_t kLine = 64;
  const std::size_t head = (kLine - reinterpret_cast<uintptr_t>(target) % kLine) % kLine;
  if (bytes >= head + kLine) {
    std::memcpy(target, source, head);
    target += head;
    source += head;
    bytes -= head;
    for (; bytes >= kLine; bytes -= kLine) {
      __m128i part[4];
      for (int i = 0; i < 4; ++i) part[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source) + i);
      for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(target) + i, part[i]);
      target += kLine;
      source += kLine;
    }
  }
#endif
  std::memcpy(target, source, bytes);
}

void finish_streams() {
#ifdef LOCKSTEP_STREAMS
  _mm_sfence();
#endif
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  if (bytes < least_streamed_bytes()) {
    std::memcpy(to, from, bytes);
    return;
  }
  stream(to, from, bytes);
  finish_streams();
}

}  // namespace lockstep::comms
