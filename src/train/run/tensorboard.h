#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "train/run/append_file.h"

namespace lockstep::train {

/// CRC-32C (Castagnoli) of `bytes`: of "123456789" it is 0xe3069283.
uint32_t crc32c(std::string_view bytes);

/// An event file that TensorBoard reads while it grows.
///
/// A record is the length of an Event (u64), its masked CRC-32C (u32), the Event in protobuf's wire form, and
/// the masked CRC-32C of that (u32), numbers with the lowest byte first. Each is one write().
class TensorBoardWriter {
 public:
  /// Makes `folder`/events.out.tfevents.<seconds>.<host>.<pid>, and the folder if it is missing. Writes the
  /// version, and that the run goes on behind step `last_step`: TensorBoard then forgets later steps that an
  /// earlier file of the folder has, of a process that was killed. Throws Error.
  explicit TensorBoardWriter(const std::filesystem::path& folder, int64_t last_step = 0);

  const std::filesystem::path& path() const { return file_.path(); }

  /// `value` becomes a float; `wall_time` is in seconds since 1970. Throws Error if the record does not go
  /// in.
  void scalar(const std::string& tag, double value, int64_t step, double wall_time);

 private:
  AppendFile file_;
};

}  // namespace lockstep::train
