#include "launch/cgroup.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::launch {

namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

Words split(const std::string& text, char separator) {
  Words words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

bool contains(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// One hierarchy: where it is mounted, and this process's folder in it. `controller` is "" for version 2.
struct Hierarchy {
  fs::path mount_point;
  fs::path mount_root;  ///< The group that the mount point shows; a container may see a part only.
  std::string group;
};

/// This process's group in the hierarchy of a controller. Lines of /proc/self/cgroup read
/// `4:memory:/folder`; version 2 has no controller names: `0::/folder`.
std::optional<std::string> group_of(const fs::path& root, const std::string& controller) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool match =
        controller.empty() ? controllers.empty() : contains(split(controllers, ','), controller);
    if (match) return line.substr(second + 1);
  }
  return std::nullopt;
}

/// Lines of /proc/self/mountinfo: `36 35 98:0 /root /mount/point options [optional ...] - type source
/// options`.
std::optional<Hierarchy> hierarchy_of(const fs::path& root, const std::string& controller) {
  const auto group = group_of(root, controller);
  if (!group) return std::nullopt;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const Words words = split(line, ' ');
    const auto dash = static_cast<size_t>(std::find(words.begin(), words.end(), "-") - words.begin());
    if (words.size() < 5 || dash + 3 >= words.size()) continue;
    const std::string& type = words[dash + 1];
    const bool match = controller.empty()
                           ? type == "cgroup2"
                           : type == "cgroup" && contains(split(words[dash + 3], ','), controller);
    if (match) return Hierarchy{root / fs::path(words[4]).relative_path(), words[3], *group};
  }
  return std::nullopt;
}

/// The group's folder and its parents up to the mount point. A group that lies outside what is mounted (a
/// container without a namespace of its own) is taken for the mount point itself.
std::vector<fs::path> folders(const Hierarchy& hierarchy) {
  std::vector<fs::path> found = {hierarchy.mount_point};
  const fs::path relative = fs::path(hierarchy.group).lexically_relative(hierarchy.mount_root);
  if (relative.empty() || *relative.begin() == "..") return found;
  for (const auto& part : relative) {
    if (part != ".") found.push_back(found.back() / part);
  }
  return found;
}

std::string read_first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<double> number(const std::string& text) {
  std::istringstream stream(text);
  double value = 0;
  if (!(stream >> value)) return std::nullopt;
  return value;
}

std::optional<double> tighter(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

/// `quota` over `period`, both in microseconds; a quota of "max" or -1 is no limit.
std::optional<double> cpus(const std::string& quota, const std::string& period) {
  const auto q = number(quota);
  const auto p = number(period);
  if (!q || !p || *q <= 0 || *p <= 0) return std::nullopt;
  return *q / *p;
}

/// Version 1 writes "no limit" as the largest multiple of a page that fits: anything above 2^60 is no limit.
std::optional<double> bytes(const std::string& text) {
  const auto value = number(text);
  if (!value || *value >= static_cast<double>(uint64_t{1} << 60)) return std::nullopt;
  return value;
}

/// What the group may still take: the kernel drops cached files that nobody has used for a while before it
/// refuses.
std::optional<double> left(std::optional<double> limit, const fs::path& usage, const fs::path& statistics,
                           const std::string& cached) {
  const auto used = number(read_first_line(usage));
  if (!limit || !used) return std::nullopt;
  double reclaimable = 0;
  std::ifstream file(statistics);
  for (std::string key; file >> key;) {
    double value = 0;
    if (file >> value && key == cached) reclaimable = value;
  }
  return std::max(0.0, *limit - std::max(0.0, *used - reclaimable));
}

}  // namespace

CgroupLimits cgroup_limits(const fs::path& root) {
  std::optional<double> cpu_limit;
  std::optional<double> memory_limit;
  std::optional<double> memory_left;
  if (const auto unified = hierarchy_of(root, "")) {
    for (const auto& folder : folders(*unified)) {
      const Words words = split(read_first_line(folder / "cpu.max"), ' ');
      if (words.size() == 2) cpu_limit = tighter(cpu_limit, cpus(words[0], words[1]));
      const auto limit = bytes(read_first_line(folder / "memory.max"));
      memory_limit = tighter(memory_limit, limit);
      memory_left = tighter(memory_left,
                            left(limit, folder / "memory.current", folder / "memory.stat", "inactive_file"));
    }
  }
  if (const auto cpu = hierarchy_of(root, "cpu")) {
    for (const auto& folder : folders(*cpu)) {
      cpu_limit = tighter(cpu_limit, cpus(read_first_line(folder / "cpu.cfs_quota_us"),
                                          read_first_line(folder / "cpu.cfs_period_us")));
    }
  }
  if (const auto memory = hierarchy_of(root, "memory")) {
    for (const auto& folder : folders(*memory)) {
      const auto limit = bytes(read_first_line(folder / "memory.limit_in_bytes"));
      memory_limit = tighter(memory_limit, limit);
      memory_left = tighter(memory_left, left(limit, folder / "memory.usage_in_bytes", folder / "memory.stat",
                                              "total_inactive_file"));
    }
  }
  CgroupLimits limits;
  limits.cpus = cpu_limit;
  if (memory_limit) limits.memory_bytes = static_cast<uint64_t>(*memory_limit);
  if (memory_left) limits.memory_left_bytes = static_cast<uint64_t>(*memory_left);
  return limits;
}

}  // namespace lockstep::launch
