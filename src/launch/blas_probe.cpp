// lockstep-blas-probe: prints which kernels OpenBLAS chooses in this environment, and its configuration, a
// line each. A program of its own, so that loading OpenBLAS (which starts threads, and crashes in broken
// installations) happens to nobody else. Its one reader is launch/blas.cpp.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>

int main() {
  alarm(5);  // ends by itself should its parent be killed meanwhile
  void* const library = dlopen("libopenblas.so.0", RTLD_LAZY);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  using Text = const char* (*)();
  const auto core = reinterpret_cast<Text>(dlsym(library, "openblas_get_corename"));
  const auto config = reinterpret_cast<Text>(dlsym(library, "openblas_get_config"));
  if (core == nullptr || config == nullptr) {
    std::fprintf(stderr, "libopenblas.so.0 does not tell its kernels\n");
    return 1;
  }
  std::printf("%s\n%s\n", core(), config());
  std::fflush(stdout);
  _exit(0);  // OpenBLAS's own end is of no interest
}
