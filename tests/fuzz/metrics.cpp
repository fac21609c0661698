// Any bytes as the metrics of a run that resumes behind any step: a refusal, or each step once and in order.
#include "train/run/metrics.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "fuzz/fuzz.h"
#include "lockstep/error.h"

namespace {

namespace train = lockstep::train;
using lockstep::fuzz::require;

/// A file that has a path of its own: a run's files are not opened behind links, as those in /proc are.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view bytes) : fd_(mkstemp(path_.data())) {
    require(write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "there is room");
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    close(fd_);
    unlink(path_.c_str());
  }

  const std::string& path() const { return path_; }
  std::string read() const {
    std::string bytes(static_cast<size_t>(lseek(fd_, 0, SEEK_END)), '\0');
    require(pread(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
            "it reads whole");
    return bytes;
  }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "fuzz-metrics-XXXXXX").string();
  int fd_;
};

std::string text_of(const std::vector<train::StepMetrics>& steps) {
  std::string text;
  int64_t last = 0;
  for (const auto& step : steps) {
    require(step.step > last, "steps are in order");
    last = step.step;
    text += train::to_line(step);
  }
  return text;
}

void check_read(std::string_view bytes) {
  const TemporaryFile file(bytes);
  const std::string text = text_of(train::read_metrics(file.path()));
  require(bytes.starts_with(text), "lines that are read are lines of the file");
  require(bytes.substr(text.size()).find('\n') == std::string_view::npos, "only the torn line is left out");
}

void check_resume(std::string_view bytes, int64_t last_step) {
  const TemporaryFile file(bytes);
  {
    train::MetricsFile metrics(file.path(), last_step);
    const std::string kept = file.read();
    require(bytes.starts_with(kept), "what is kept was there");
    const auto steps = train::read_metrics(file.path());
    require(text_of(steps) == kept, "what is kept are whole lines");
    require(steps.empty() || steps.back().step <= last_step, "later steps are cut away");
    metrics.append({.step = last_step + 1});
  }
  require(train::read_metrics(file.path()).back().step == last_step + 1, "a step comes behind the last");
}

template <typename Check>
void check_or_refuse(Check check) {
  try {
    check();
  } catch (const lockstep::UsageError& refusal) {
    lockstep::fuzz::require_readable(refusal);
    require(std::string_view(refusal.what()).find("fuzz-metrics-") != std::string_view::npos,
            "a refusal names the file");
  }
}

}  // namespace

// The first byte is the step to resume behind.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  check_or_refuse([&] { check_read(bytes); });
  check_or_refuse([&] { check_resume(bytes, data[0]); });
  return 0;
}
