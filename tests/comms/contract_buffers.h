#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comms/communicator.h"

// What the parts of the contract have in common: values, buffers, and how they are compared.
namespace lockstep::test {

using Problems = std::vector<std::string>;

/// Distinct for every rank and element, and exactly summable: a misplaced element shows.
inline float value(int rank, int64_t element) {
  return static_cast<float>((rank + 1) * 1024 + element % 1021);
}

inline float sum_of(int world, int64_t element) {
  float sum = 0;
  for (int rank = 0; rank < world; ++rank) sum += value(rank, element);
  return sum;
}

inline std::vector<float> values(int rank, int64_t count, int64_t first = 0) {
  std::vector<float> all(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) all[static_cast<size_t>(i)] = value(rank, first + i);
  return all;
}

template <typename Expected>
void expect(Problems& problems, const std::string& what, const std::vector<float>& found, Expected expected) {
  for (size_t i = 0; i < found.size(); ++i) {
    const float wanted = expected(static_cast<int64_t>(i));
    if (found[i] == wanted) continue;
    problems.push_back(fmt::format("{}: element {} is {}, expected {}", what, i, found[i], wanted));
    return;
  }
}

/// Where the buffers of a call lie. kMixed: in shared memory on even ranks only.
enum class Place { kPrivate, kShared, kMixed };

/// A buffer of floats, with something on both sides that must not be touched.
class GuardedFloats {
 public:
  GuardedFloats(Communicator& comm, Place place, const std::vector<float>& content,
                DataType type = DataType::kFloat32)
      : type_(type) {
    const bool shared = place == Place::kShared || (place == Place::kMixed && comm.rank() % 2 == 0);
    if (shared) memory_ = comm.allocate((content.size() + 2) * sizeof(float));
    private_.resize(shared ? 0 : content.size() + 2);
    all_ = {shared ? static_cast<float*>(memory_.get()) : private_.data(), content.size() + 2};
    all_.front() = all_.back() = kUntouched;
    std::copy(content.begin(), content.end(), inner().begin());
  }
  /// As elements of its type: for collectives that only move, any will do.
  operator Buffer() {  // NOLINT(google-explicit-constructor): a view
    return {inner().data(), static_cast<int64_t>(inner().size_bytes() / size_of(type_)), type_};
  }
  /// What it holds.
  std::vector<float> content(Problems& problems, const std::string& what) {
    if (all_.front() != kUntouched || all_.back() != kUntouched)
      problems.push_back(what + ", beside the buffer");
    return {inner().begin(), inner().end()};
  }

 private:
  static constexpr float kUntouched = -7.0F;
  std::span<float> inner() { return all_.subspan(1, all_.size() - 2); }

  const DataType type_;
  std::shared_ptr<void> memory_;
  std::vector<float> private_;
  std::span<float> all_;
};

}  // namespace lockstep::test
