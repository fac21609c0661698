// store_actor FOLDER SEED: commits steps 1, 2 and 3 of random files into a store that keeps two, and says so
// on standard output. What fails is told, abandoned, and ends it with 1.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "train/checkpoint/samples.h"
#include "train/checkpoint/store.h"

namespace {

using lockstep::test::random_bytes;
using lockstep::train::CheckpointStore;
using lockstep::train::Seal;
using lockstep::train::write_sealed;

void save(const CheckpointStore& store, unsigned step, unsigned seed) {
  try {
    const auto folder = store.begin(step);
    std::vector<Seal> seals;
    for (const char* name : {"model", "optimizer", "state"}) {
      const auto contents = random_bytes(1000 + step, seed + step);
      seals.push_back(write_sealed(folder, name, {contents}));
    }
    store.commit(step, seals, 2);
  } catch (...) {
    store.abandon(step);
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const CheckpointStore store(argv[1]);
    store.remove_leftovers();
    for (unsigned step = 1; step <= 3; ++step) {
      save(store, step, static_cast<unsigned>(std::atoi(argv[2])) * 100);
      std::printf("committed %u\n", step);
      std::fflush(stdout);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
