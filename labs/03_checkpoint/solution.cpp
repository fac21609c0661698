// Lesson 3: a checkpoint that survives.
#include <optional>
#include <string>

#include "lab/disk.h"
#include "lab/packing.h"
#include "lab/tiny_trainer.h"

namespace my_work {

lab::Bytes to_bytes(const lab::TrainState& state) {
  lab::Packer packer;
  packer.add(state.step);
  packer.add(state.rng);
  packer.add(state.weights);
  packer.add(state.momentum);
  return packer.bytes();
}

lab::TrainState from_bytes(const lab::Bytes& bytes) {
  lab::TrainState state;
  lab::Unpacker unpacker(bytes);
  unpacker.take(state.step);
  unpacker.take(state.rng);
  unpacker.take(state.weights);
  unpacker.take(state.momentum);
  return state;
}

void save(lab::Disk& disk, const std::string& name, const lab::Bytes& state) {
  const std::string temporary = name + ".tmp";
  disk.create(temporary);
  disk.append(temporary, lab::seal(state));
  disk.fsync(temporary);  // first the contents ...
  disk.close(temporary);
  // Only a whole checkpoint may replace the one before it.
  const auto last = disk.read(name);
  if (last && lab::unseal(*last)) disk.rename(name, name + ".old");
  disk.rename(temporary, name);  // ... then the name, at once ...
  disk.fsync_folder();           // ... and the name is on the disk as well
}

std::optional<lab::Bytes> load(const lab::Disk& disk, const std::string& name) {
  for (const std::string& file : {name, name + ".old"}) {
    const auto sealed = disk.read(file);
    if (!sealed) continue;
    if (auto state = lab::unseal(*sealed)) return state;
  }
  return std::nullopt;
}

}  // namespace my_work
