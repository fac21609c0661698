// Preloaded, it makes the real OpenBLAS take every CPU for a Prescott unless OPENBLAS_CORETYPE is set: the
// misreading of some virtual machines, with the real kernels, on any machine.
#include <unistd.h>

#include <cstring>

extern "C" char* getenv(const char* name) noexcept {
  const size_t length = std::strlen(name);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  }
  static char prescott[] = "Prescott";
  return std::strcmp(name, "OPENBLAS_CORETYPE") == 0 ? prescott : nullptr;
}
