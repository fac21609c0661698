#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "lab/disk.h"

namespace lab {

bool SimulatedDisk::exists(const std::string& name) const {
  return names_.contains(name);
}

std::optional<Bytes> SimulatedDisk::read(const std::string& name) const {
  const auto found = names_.find(name);
  if (found == names_.end()) return std::nullopt;
  return found->second->cached;
}

SimulatedDisk::Call& SimulatedDisk::begin(std::string text) {
  if (is_dead_) throw PowerCut{};
  calls_.push_back({.text = std::move(text)});
  if (cut_calls_ && calls_.size() > *cut_calls_ && cut_bytes_ == 0) {
    is_dead_ = true;
    throw PowerCut{};
  }
  return calls_.back();
}

SimulatedDisk::File& SimulatedDisk::open_file(const std::string& name, const char* what) const {
  const auto found = names_.find(name);
  if (found != names_.end() && found->second->is_open) return *found->second;
  throw std::runtime_error(
      fmt::format("{}: '{}' is not open; create() opens a file, under that name", what, name));
}

void SimulatedDisk::apply(Change change) {
  for (const auto& [name, file] : change) {
    if (file) {
      names_[name] = file;
    } else {
      names_.erase(name);
    }
  }
  changes_.push_back(std::move(change));
}

void SimulatedDisk::create(const std::string& name) {
  Call& call = begin(fmt::format("create {}", name));
  const auto found = names_.find(name);
  if (found == names_.end()) {
    auto file = std::make_shared<File>();
    file->is_open = true;
    apply({{name, std::move(file)}});
    return;
  }
  call.empties = !found->second->cached.empty();
  found->second->cached.clear();
  found->second->is_open = true;
}

void SimulatedDisk::append(const std::string& name, std::span<const std::byte> bytes) {
  Call& call = begin(fmt::format("append {}, {} bytes", name, bytes.size()));
  File& file = open_file(name, "append");
  call.bytes = bytes.size();
  const bool is_cut = cut_calls_ && calls_.size() > *cut_calls_;
  const auto written = is_cut ? bytes.first(std::min(cut_bytes_, bytes.size())) : bytes;
  file.cached.insert(file.cached.end(), written.begin(), written.end());
  if (is_cut) {
    is_dead_ = true;
    throw PowerCut{};
  }
}

void SimulatedDisk::fsync(const std::string& name) {
  begin(fmt::format("fsync {}", name));
  File& file = open_file(name, "fsync");
  file.durable = file.cached;
}

void SimulatedDisk::close(const std::string& name) {
  begin(fmt::format("close {}", name));
  open_file(name, "close").is_open = false;
}

void SimulatedDisk::rename(const std::string& from, const std::string& to) {
  Call& call = begin(fmt::format("rename {} to {}", from, to));
  const auto found = names_.find(from);
  if (found == names_.end()) throw std::runtime_error(fmt::format("rename: there is no '{}'", from));
  const auto file = found->second;
  call.is_unsynced = file->is_dirty();
  if (from != to) apply({{from, nullptr}, {to, file}});
}

void SimulatedDisk::remove(const std::string& name) {
  begin(fmt::format("remove {}", name)).removes = true;
  if (!names_.contains(name)) throw std::runtime_error(fmt::format("remove: there is no '{}'", name));
  apply({{name, nullptr}});
}

void SimulatedDisk::fsync_folder() {
  begin("fsync the folder");
  durable_names_ = names_;
  changes_.clear();
}

void SimulatedDisk::cut_after(size_t calls, size_t bytes) {
  cut_calls_ = calls_.size() + calls;
  cut_bytes_ = bytes;
}

std::vector<std::string> SimulatedDisk::open_files() const {
  std::vector<std::string> open;
  for (const auto& [name, file] : names_) {
    if (file->is_open) open.push_back(name);
  }
  return open;
}

std::vector<std::string> SimulatedDisk::names() const {
  std::vector<std::string> all;
  for (const auto& [name, file] : names_) all.push_back(name);
  return all;
}

Bytes SimulatedDisk::survivor(const File& file, Unsynced unsynced) {
  if (unsynced == Unsynced::kLost) return file.durable;
  if (unsynced == Unsynced::kKept) return file.cached;
  // What was synced stays, unless the file was emptied since.
  const bool grew = file.cached.size() >= file.durable.size() &&
                    std::equal(file.durable.begin(), file.durable.end(), file.cached.begin());
  const size_t safe = grew ? file.durable.size() : 0;
  Bytes bytes = file.cached;
  if (unsynced == Unsynced::kHalf) {
    bytes.resize(safe + (bytes.size() - safe) / 2);
  } else {
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(safe), bytes.end(), std::byte{0});
  }
  return bytes;
}

SimulatedDisk SimulatedDisk::disk_of(const Names& names, Unsynced unsynced) {
  SimulatedDisk disk;
  for (const auto& [name, file] : names) {
    auto copy = std::make_shared<File>();
    copy->cached = copy->durable = survivor(*file, unsynced);
    disk.names_[name] = disk.durable_names_[name] = std::move(copy);
  }
  return disk;
}

std::vector<SimulatedDisk::Outcome> SimulatedDisk::outcomes() const {
  constexpr size_t kMostSubsets = 6;  // of more changes: those up to some point
  bool is_dirty = false;
  std::vector<Names> folders;
  std::vector<size_t> applied;
  const size_t count = changes_.size();
  const size_t sets = count <= kMostSubsets ? size_t{1} << count : count + 1;
  for (size_t set = 0; set < sets; ++set) {
    Names names = durable_names_;
    size_t done = 0;
    for (size_t i = 0; i < count; ++i) {
      if (count <= kMostSubsets ? ((set >> i) & 1) == 0 : i >= set) continue;
      ++done;
      for (const auto& [name, file] : changes_[i]) {
        if (file) {
          names[name] = file;
        } else {
          names.erase(name);
        }
      }
    }
    for (const auto& [name, file] : names) is_dirty = is_dirty || file->is_dirty();
    folders.push_back(std::move(names));
    applied.push_back(done);
  }
  std::vector<std::pair<Unsynced, std::string>> ways = {
      {Unsynced::kLost, "data that was not synced is lost"}};
  if (is_dirty) {
    ways.emplace_back(Unsynced::kKept, "all data is there");
    ways.emplace_back(Unsynced::kHalf, "half of the data that was not synced is there");
    ways.emplace_back(Unsynced::kZeros, "data that was not synced is zeros");
  }
  std::vector<Outcome> all;
  for (size_t i = 0; i < folders.size(); ++i) {
    for (const auto& [way, words] : ways) {
      std::string text = is_dirty ? words : "";
      if (count > 0) {
        text += fmt::format("{}{} of {} changes of names since the folder was synced {} there",
                            text.empty() ? "" : ", ", applied[i], count, applied[i] == 1 ? "is" : "are");
      }
      all.push_back({disk_of(folders[i], way), text.empty() ? "everything was synced" : text});
    }
  }
  return all;
}

SimulatedDisk SimulatedDisk::synced_copy() const {
  return disk_of(names_, Unsynced::kKept);
}

void SimulatedDisk::damage(const std::string& name, Bytes bytes) {
  names_.at(name)->cached = bytes;
  names_.at(name)->durable = std::move(bytes);
}

}  // namespace lab
