#include <lockstep/core.h>

#include <cstdio>

int main() {
  const lockstep::Identity identity = lockstep::identify();
  std::printf("lockstep %s: %s\n", LOCKSTEP_VERSION, lockstep::to_string(identity).c_str());
  return identity.rank == 1 && identity.world_size == 2 ? 0 : 1;
}
