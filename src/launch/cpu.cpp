#include "launch/cpu.h"

#if defined(__x86_64__) && !defined(LOCKSTEP_PORTABLE)
#include <cpuid.h>

#include <cstdint>
#include <cstring>
#endif

namespace lockstep::launch {

#if defined(__x86_64__) && !defined(LOCKSTEP_PORTABLE)

namespace {

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

/// Zeros for a leaf that the CPU does not have.
Registers cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

constexpr bool bit(uint32_t word, int index) {
  return ((word >> index) & 1U) != 0;
}

/// Which register states the operating system saves. Only with OSXSAVE; the instruction is spelled out
/// because the intrinsic needs -mxsave.
uint64_t extended_control_register() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

std::string vendor_name() {
  const Registers r = cpuid(0);
  const uint32_t words[] = {r.ebx, r.edx, r.ecx};
  char text[sizeof words + 1] = {};
  std::memcpy(text, words, sizeof words);
  return text;
}

std::string brand_text() {
  constexpr uint32_t kFirst = 0x80000002;
  char text[3 * sizeof(Registers) + 1] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    const Registers r = cpuid(kFirst + i);
    std::memcpy(text + i * sizeof r, &r, sizeof r);
  }
  const std::string brand = text;
  const auto first = brand.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return brand.substr(first, brand.find_last_not_of(' ') - first + 1);
}

}  // namespace

CpuFeatures detect_cpu() {
  CpuFeatures cpu;
  cpu.vendor = vendor_name();
  cpu.model_name = brand_text();
  const Registers basic = cpuid(1);
  const Registers extended = cpuid(7);
  const bool os_saves = bit(basic.ecx, 27);
  const uint64_t saved = os_saves ? extended_control_register() : 0;
  constexpr uint64_t kAvxState = 0x06;     // xmm and the upper halves of ymm
  constexpr uint64_t kAvx512State = 0xe6;  // and mask registers, upper halves of zmm, zmm16 to zmm31
  cpu.avx = (saved & kAvxState) == kAvxState && bit(basic.ecx, 28);
  cpu.fma = cpu.avx && bit(basic.ecx, 12);
  cpu.avx2 = cpu.avx && bit(extended.ebx, 5);
  cpu.avx512 = cpu.avx2 && (saved & kAvx512State) == kAvx512State && bit(extended.ebx, 16) &&
               bit(extended.ebx, 17) && bit(extended.ebx, 28) && bit(extended.ebx, 30) &&
               bit(extended.ebx, 31);
  return cpu;
}

#else

CpuFeatures detect_cpu() {
  return {};
}

#endif

}  // namespace lockstep::launch
