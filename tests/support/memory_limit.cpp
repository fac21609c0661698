#include "support/memory_limit.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <vector>

namespace lockstep::test {

namespace {

namespace fs = std::filesystem;

bool write(const fs::path& file, const std::string& text) {
  std::ofstream stream(file);
  stream << text << std::flush;
  return stream.good();
}

}  // namespace

MemoryLimit::MemoryLimit(size_t bytes) {
  // Of version 1 and of version 2, where Debian mounts them.
  const fs::path root = "/sys/fs/cgroup";
  const bool version_1 = fs::exists(root / "memory/memory.limit_in_bytes");
  const fs::path parent = version_1 ? root / "memory" : root;
  folder_ = parent / fmt::format("lockstep-test-{}-{}", getpid(), reinterpret_cast<uintptr_t>(this));
  if (mkdir(folder_.c_str(), 0755) != 0) {
    why_not_ = fmt::format("no control group can be made in {}", parent.string());
    folder_.clear();
    return;
  }
  if (!write(folder_ / (version_1 ? "memory.limit_in_bytes" : "memory.max"), std::to_string(bytes))) {
    why_not_ = "control groups here do not limit memory";
  }
}

MemoryLimit::~MemoryLimit() {
  if (!folder_.empty()) rmdir(folder_.c_str());
}

void MemoryLimit::enter() const {
  if (!write(folder_ / "cgroup.procs", std::to_string(getpid()))) {
    throw std::runtime_error("cannot enter the control group " + folder_.string());
  }
}

}  // namespace lockstep::test
