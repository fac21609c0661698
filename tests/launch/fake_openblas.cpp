// A libopenblas.so.0 that takes every CPU for a Prescott, as the real one does with some virtual machines.
#include <cstdlib>

extern "C" const char* openblas_get_corename() {
  const char* const asked = std::getenv("OPENBLAS_CORETYPE");
  return asked != nullptr ? asked : "Prescott";
}

extern "C" const char* openblas_get_config() {
  return "OpenBLAS 0.0.0 fake";
}
