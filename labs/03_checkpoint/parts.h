#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "03_checkpoint/check.h"

namespace lab::checkpoint {

/// What the check saves under.
inline const std::string kName = "state";
inline const std::string kOther = "model";

/// Bytes to save, of a length that no other number below 100 has. No learner's code makes them.
Bytes state_number(const Checker& checker, uint64_t number);

/// Which of the two states this is: "the old state", "the new state", "nothing", or how long it is.
std::string text_of(const std::optional<Bytes>& found, const std::optional<Bytes>& before, const Bytes& now);

/// The name of a file that holds the whole of `state`, sealed or not; "" if there is none.
std::string holder_of(const SimulatedDisk& disk, const std::optional<Bytes>& state);

/// Cuts the power of a simulated disk wherever it can be cut.
void check_cuts(const Seam& seam, Checker& checker);
/// The same once more after a first cut, and after damage: what a crash leaves is where the next save starts.
void check_second_crash(const Seam& seam, Checker& checker);

/// A disk on which a process of its own has saved one state under each name.
SimulatedDisk first_saves(const Seam& seam, Checker& checker);

/// A disk on which two states were saved under each name and one file of kName was damaged since.
struct Damaged {
  SimulatedDisk disk;
  std::string text;  ///< What was damaged, and how.
};
/// Saves the second states over those of first_saves(), and damages what is left in many ways.
std::vector<Damaged> damaged_disks(const Seam& seam, const Checker& checker, SimulatedDisk saved);

/// Kills processes that save on a real disk, and loads in processes that did not save.
void check_kills(const Seam& seam, Checker& checker);

}  // namespace lab::checkpoint
