// Takes what the file holds for what was saved.
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
  disk.fsync(temporary);
  disk.close(temporary);
  if (disk.exists(name)) disk.rename(name, name + ".old");
  disk.rename(temporary, name);
  disk.fsync_folder();
}

std::optional<lab::Bytes> load(const lab::Disk& disk, const std::string& name) {
  auto bytes = disk.read(name);
  if (!bytes) bytes = disk.read(name + ".old");
  if (bytes && bytes->size() >= 8) bytes->resize(bytes->size() - 8);
  return bytes;
}

}  // namespace my_work
