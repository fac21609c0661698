// A library that takes SIGHUP for itself as it is loaded, as UCX does, which Open MPI 5 brings along.
#include <csignal>

[[gnu::constructor]] static void take_sighup() {
  std::signal(SIGHUP, [](int) {});
}
