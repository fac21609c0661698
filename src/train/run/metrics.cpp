#include "train/run/metrics.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>

#include "lockstep/error.h"
#include "plan/shown.h"

namespace lockstep::train {

namespace {

namespace fs = std::filesystem;

struct Field {
  std::string_view before;
  double StepMetrics::*member;
};

constexpr std::string_view kBegin = R"({"step":)";
constexpr std::array<Field, 5> kFields = {{{R"(,"loss":)", &StepMetrics::loss},
                                           {R"(,"lr":)", &StepMetrics::lr},
                                           {R"(,"tokens_per_s":)", &StepMetrics::tokens_per_s},
                                           {R"(,"gradient_norm":)", &StepMetrics::gradient_norm},
                                           {R"(,"exposed_ms":)", &StepMetrics::exposed_ms}}};
constexpr std::string_view kEnd = "}\n";

// Twice the longest line that to_line() writes.
constexpr std::streamsize kMostLineBytes = 512;

template <typename Number>
void put(std::string& line, Number number) {
  std::array<char, 32> digits;
  // The standard fixes every digit of this, whichever library writes and reads.
  line.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

bool take(std::string_view& rest, std::string_view expected) {
  if (!rest.starts_with(expected)) return false;
  rest.remove_prefix(expected.size());
  return true;
}

template <typename Number>
bool take_number(std::string_view& rest, Number& number) {
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc()) return false;
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  return true;
}

bool take_value(std::string_view& rest, double& value) {
  value = std::numeric_limits<double>::quiet_NaN();
  return take(rest, "null") || take_number(rest, value);
}

/// `line` is without its newline.
std::optional<StepMetrics> parse(std::string_view line) {
  StepMetrics metrics;
  std::string_view rest = line;
  bool is_read = take(rest, kBegin) && take_number(rest, metrics.step);
  for (const auto& [before, member] : kFields) {
    is_read = is_read && take(rest, before) && take_value(rest, metrics.*member);
  }
  // Many texts read as the same number; only one of them is to_line()'s.
  if (!is_read || to_line(metrics) != fmt::format("{}\n", line)) return std::nullopt;
  return metrics;
}

[[noreturn]] void refuse_metrics(const fs::path& file, int64_t line, std::string_view reason) {
  throw UsageError(fmt::format("metrics {} line {}: {}; hint: move the file away, and a new one is begun",
                               file.string(), line, reason));
}

[[noreturn]] void refuse_metrics(const fs::path& file, std::string_view reason) {
  throw UsageError(fmt::format("metrics {}: cannot be read: {}", file.string(), reason));
}

/// Reads lines of at most kMostLineBytes, so that memory stays bounded, whatever the file.
class Lines {
 public:
  explicit Lines(const fs::path& file) : file_(file) {
    std::error_code failure;
    const auto status = fs::status(file, failure);
    if (!fs::exists(status)) refuse_metrics(file, failure ? failure.message() : std::strerror(ENOENT));
    if (!fs::is_regular_file(status)) refuse_metrics(file, "it is no regular file");
    errno = 0;
    stream_.open(file, std::ios::binary);
    if (!stream_) refuse_metrics(file, std::strerror(errno));
  }

  /// The next whole line; nothing at the end, or where the torn line begins.
  std::optional<StepMetrics> next() {
    errno = 0;
    stream_.getline(buffer_.data(), kMostLineBytes);
    std::string_view line(buffer_.data(), static_cast<size_t>(stream_.gcount()));
    const bool is_long = stream_.fail() && !stream_.eof() && !stream_.bad();
    if (is_long) {
      stream_.clear();
      stream_.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    if (stream_.bad()) refuse_metrics(file_, std::strerror(errno));
    if (stream_.eof()) return std::nullopt;
    ++number_;
    if (!is_long) line.remove_suffix(1);
    const auto metrics = parse(line);
    if (!metrics) {
      refuse_metrics(file_, number_, fmt::format("'{}' is no line of metrics", plan::shown(line)));
    }
    if (metrics->step <= last_step_) {
      refuse_metrics(file_, number_, fmt::format("step {} is not above {}", metrics->step, last_step_));
    }
    last_step_ = metrics->step;
    return metrics;
  }

 private:
  const fs::path& file_;
  std::ifstream stream_;
  std::array<char, kMostLineBytes> buffer_{};
  int64_t number_ = 0;
  int64_t last_step_ = 0;
};

/// The bytes of the lines up to step `last_step`.
uint64_t bytes_up_to(const fs::path& file, int64_t last_step) {
  uint64_t bytes = 0;
  if (last_step == 0) return bytes;
  Lines lines(file);
  // What stands behind the last step is cut away unread.
  for (int64_t step = 0; step < last_step;) {
    const auto metrics = lines.next();
    if (!metrics || metrics->step > last_step) break;
    step = metrics->step;
    bytes += to_line(*metrics).size();
  }
  return bytes;
}

}  // namespace

std::string to_line(const StepMetrics& metrics) {
  std::string line(kBegin);
  put(line, metrics.step);
  for (const auto& [before, member] : kFields) {
    line += before;
    if (std::isfinite(metrics.*member)) {
      put(line, metrics.*member);
    } else {
      line += "null";
    }
  }
  line += kEnd;
  return line;
}

MetricsFile::MetricsFile(const fs::path& file, int64_t last_step) : file_(file), last_step_(last_step) {
  if (last_step < 0) {
    throw UsageError(fmt::format("metrics {}: last step {} is below 0", file.string(), last_step));
  }
  file_.cut(bytes_up_to(file, last_step));
}

void MetricsFile::append(const StepMetrics& metrics) {
  if (metrics.step <= last_step_) {
    throw UsageError(fmt::format("metrics {}: step {} after step {}; hint: each step once, in order",
                                 file_.path().string(), metrics.step, last_step_));
  }
  file_.append(to_line(metrics));
  last_step_ = metrics.step;
}

std::vector<StepMetrics> read_metrics(const fs::path& file) {
  std::vector<StepMetrics> steps;
  Lines lines(file);
  while (const auto metrics = lines.next()) steps.push_back(*metrics);
  return steps;
}

}  // namespace lockstep::train
