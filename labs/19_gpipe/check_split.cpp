#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "19_gpipe/check.h"
#include "lab/schedules.h"

namespace lab::gpipe {

namespace {

/// So many samples that nobody may write to. They cost nothing until somebody reads them, and stay until the
/// check's process ends.
std::span<const float> read_only_samples(size_t count) {
  void* const memory = mmap(nullptr, count * sizeof(float), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  return {static_cast<const float*>(memory), count};
}

/// What split_batch is asked.
struct Batch {
  int64_t samples = 0;
  int microbatches = 0;
};

std::vector<Batch> batches(const Checker& checker) {
  std::vector<Batch> all = {{10, 4}, {10, 3}, {8, 4}, {7, 3}, {32, 8}, {1, 1}, {5, 5}, {100, 7}};
  const auto add = [&](int64_t low, int64_t high, const auto& samples_of) {
    const auto salt = 10 * static_cast<uint64_t>(all.size());
    const int64_t microbatches = checker.draw_between(salt, low, high);
    all.push_back({samples_of(microbatches, salt + 1), static_cast<int>(microbatches)});
  };
  for (int i = 0; i < 5; ++i)
    add(1, 9, [&](int64_t M, uint64_t salt) { return M + checker.draw_between(salt, 0, 49); });
  add(9, 64, [&](int64_t M, uint64_t) { return M; });
  add(9, 64, [&](int64_t M, uint64_t) { return M + 1; });
  add(9, 64, [&](int64_t M, uint64_t salt) { return M * checker.draw_between(salt, 2, 99) - 1; });
  add(9, 64, [&](int64_t M, uint64_t salt) { return M * checker.draw_between(salt, 100, 999); });
  add(257, 400, [&](int64_t, uint64_t salt) { return checker.draw_between(salt, 4097, 99'999); });
  // Beyond what a float counts exactly, 4k + 1 becomes 4k; and microbatches * samples is beyond 2^32.
  add(260, 400,
      [&](int64_t, uint64_t salt) { return 4 * checker.draw_between(salt, 4'250'000, 4'999'999) + 1; });
  return all;
}

/// A micro-batch, by its place in the batch; begin is -1 if it does not begin there.
struct Slice {
  int64_t begin = 0;
  int64_t size = 0;
};
struct Split {
  size_t count = 0;           ///< Micro-batches.
  std::vector<Slice> slices;  ///< Of them, no more than were asked for.
};

Split split_one(const Seam& seam, std::span<const float> all, const Batch& batch) {
  const auto samples = all.first(static_cast<size_t>(batch.samples));
  const auto parts = seam.split_batch(samples, batch.microbatches);
  Split split{parts.size(), {}};
  for (const auto& part : parts) {
    if (split.slices.size() == static_cast<size_t>(batch.microbatches)) break;
    const auto from = reinterpret_cast<uintptr_t>(part.data()),
               first = reinterpret_cast<uintptr_t>(samples.data());
    const bool is_inside = from >= first && from <= first + samples.size_bytes();
    split.slices.push_back({is_inside ? static_cast<int64_t>((from - first) / sizeof(float)) : -1,
                            static_cast<int64_t>(part.size())});
  }
  return split;
}

std::string text_of(const Batch& batch) {
  return counted(batch.samples, "sample") + " in " + microbatches_text(batch.microbatches);
}

/// `3 3 2 2`, shortened where it is long.
template <typename Value>
std::string list_text(const std::vector<Value>& values) {
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < std::min(values.size(), kShown); ++i)
    text += fmt::format("{}{:.6g}", i == 0 ? "" : " ", static_cast<double>(values[i]));
  if (values.empty()) return "none";
  return values.size() > kShown ? text + " ..." : text;
}

/// Each sample is in one slice.
void expect_cover(Checker& checker, const Batch& batch, const Split& split, const std::string& found) {
  for (size_t m = 0; m < split.slices.size(); ++m) {
    const auto [begin, size] = split.slices[m];
    checker.expect(begin >= 0 || size == 0, "not a slice of the batch",
                   fmt::format("{}; micro-batch {} is elsewhere in memory", found, m),
                   "Return parts of the batch itself, by batch.subspan(begin, size). A span does not own its "
                   "samples: one of a local vector is dangling as soon as the function returns.");
    checker.expect(size >= 0 && (size == 0 || size <= batch.samples - begin), "beyond the batch",
                   fmt::format("{}; micro-batch {} begins with sample {} and has {}", found, m, begin,
                               counted(size, "sample")),
                   "The slice ends after the last sample. Where does it begin, and how long is it?");
  }
  auto sorted = split.slices;
  std::erase_if(sorted, [](const Slice& slice) { return slice.size == 0; });
  const auto is_before = [](const Slice& a, const Slice& b) { return a.begin < b.begin; };
  const bool is_sorted = std::is_sorted(sorted.begin(), sorted.end(), is_before);
  std::sort(sorted.begin(), sorted.end(), is_before);
  const std::string meaning = "Each slice begins where the one before it ended.";
  int64_t next = 0;
  for (const auto& [begin, size] : sorted) {
    checker.expect(begin >= next, "samples twice",
                   fmt::format("{}; sample {} is in more than one micro-batch", found, begin), meaning);
    checker.expect(begin == next, "samples left out",
                   fmt::format("{}; sample {} is in no micro-batch", found, next), meaning);
    next = begin + size;
  }
  const int64_t dropped = batch.samples - next;
  checker.expect(
      dropped == 0, "tail dropped",
      fmt::format("{}; the last {} of {} are in no micro-batch", found, dropped,
                  counted(batch.samples, "sample")),
      dropped == batch.samples % batch.microbatches
          ? "samples / M is rounded down. The remainder, samples % M, must go somewhere: give one more "
            "to that many micro-batches."
          : "The last slice ends with the last sample.");
  checker.expect(is_sorted, "samples out of order",
                 fmt::format("{}; micro-batch 0 begins with sample {}", found, split.slices[0].begin),
                 meaning);
}

void judge_split(Checker& checker, const Batch& batch, const Split& split) {
  std::vector<int64_t> sizes;
  for (const auto& slice : split.slices) sizes.push_back(slice.size);
  const auto asked = text_of(batch);
  const auto found = fmt::format("{}: sizes are {}", asked, list_text(sizes));
  checker.expect(split.count != 1 || batch.microbatches == 1, "not split",
                 fmt::format("{}: one slice came back, with {}", asked,
                             counted(split.slices.empty() ? 0 : sizes[0], "sample")),
                 "Stage 1 cannot start before stage 0 is done with something. Cut the batch, so that it is "
                 "done with the first part soon.");
  checker.expect(split.count == static_cast<size_t>(batch.microbatches), "wrong number of microbatches",
                 fmt::format("{}; {} came back", found,
                             split.count == 0 ? "none" : counted(static_cast<int64_t>(split.count), "slice")),
                 "As many slices as were asked for: where the samples do not divide, some slices are one "
                 "longer, and none is added.");
  expect_cover(checker, batch, split, found);
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  checker.expect(*most - *least <= 1, *least == 0 ? "empty microbatch" : "uneven split",
                 fmt::format("{}; the shortest has {}, the longest {}", found, *least, *most),
                 "All stages wait for the longest micro-batch. Sizes differ by one at most: the first "
                 "samples % M have one more.");
}

/// Every sample in one micro-batch, in order, as evenly as can be.
void check_batches(const Seam& seam, Checker& checker) {
  const auto asked = batches(checker);
  const auto all = read_only_samples(20'001'000);
  size_t begin = 100;  // each batch is elsewhere, and has samples of nobody before it
  const auto call_of = [](const Batch& batch) { return "split_batch of " + text_of(batch); };
  const auto splits = ask_twice(checker, asked, call_of, [&](const Batch& batch) {
    return split_one(seam, all.subspan(begin += 8), batch);
  });
  for (size_t i = 0; i < asked.size(); ++i) judge_split(checker, asked[i], splits[i]);
  checker.proved("every sample is in one micro-batch, and their sizes differ by one at most");
}

/// Sizes of micro-batches, not only as even as a good split has them.
using Sizes = std::vector<int64_t>;
std::vector<Sizes> uneven_sizes(const Checker& checker) {
  std::vector<Sizes> all = {{3, 3, 2, 2}, {3, 2, 2}, {2, 2, 2, 2}, {1}, {7, 1, 4}, {3, 1, 3}, {2, 2, 2, 1}};
  for (const auto& [least, most] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 9}, {1, 50}, {300, 70'000}, {800'000, 900'000}}) {
    const auto salt = 1000 * static_cast<uint64_t>(all.size());
    auto& sizes = all.emplace_back();
    const int64_t count = checker.draw_between(salt, 2, 20);
    for (int64_t m = 0; m < count; ++m)
      sizes.push_back(checker.draw_between(salt + 1 + static_cast<uint64_t>(m), least, most));
    sizes[0] = sizes[1] + 1;
    if (count > 2 && checker.draw(salt) % 2 == 0)
      sizes.back() = sizes[0];  // nor shows an end that they differ
  }
  all.emplace_back(static_cast<size_t>(checker.draw_between(9000, 257, 400)), 3);
  all.push_back({checker.draw_between(9001, 9, 9999)});
  return all;
}

[[noreturn]] void fail_weights(Checker& checker, const Sizes& sizes, const std::vector<double>& weights,
                               const std::vector<double>& expected) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto what = fmt::format("sizes {}: the weights are {}, expected {}; they add up to {:.4g}",
                                list_text(sizes), list_text(weights), list_text(expected), sum);
  const auto all_are = [&](double value) {
    return std::all_of(weights.begin(), weights.end(),
                       [&](double weight) { return std::abs(weight - value) <= 1e-5 * value; });
  };
  if (std::abs(sum - 1) < 1e-4) {
    if (all_are(1 / static_cast<double>(sizes.size())))
      checker.fail(
          "means not weighted", what,
          "A mean over 3 samples stands for more than one over 2. A micro-batch counts by its samples: size "
          "/ samples of the batch, which is 1 / M only where all are equally long.");
    checker.fail("wrong weights", what,
                 "They add up to 1, but a micro-batch's weight is its own size / samples of the batch.");
  }
  const char* meaning =
      "Together the weights must be 1, since the mean of equal losses is the same loss. Divide each size by "
      "the samples of all micro-batches.";
  if (std::isnan(sum))
    meaning = "0 divided by 0 is not a number. What do you divide by?";
  else if (all_are(0))
    meaning =
        "Either nothing was computed yet, or integers were divided: 3 / 10 is 0. Make both numbers double "
        "first.";
  else if (all_are(1))
    meaning =
        "Gradients of all micro-batches are added. If each counts fully, their sum is M times too large: "
        "together the weights must be 1.";
  checker.fail("weights do not add up", what, meaning);
}

/// Means of micro-batches, weighted, are the mean of the batch: for any losses, so there is one answer.
void check_weights(const Seam& seam, Checker& checker) {
  const auto asked = uneven_sizes(checker);
  const auto all = read_only_samples(20'000'000);
  const auto call_of = [](const Sizes& sizes) { return "loss_weights of sizes " + list_text(sizes); };
  const auto all_weights = ask_twice(checker, asked, call_of, [&](const Sizes& sizes) {
    MicroBatches parts;
    size_t begin = 0;
    for (const int64_t size : sizes) {
      parts.push_back(all.subspan(begin, static_cast<size_t>(size)));
      begin += parts.back().size();
    }
    return seam.loss_weights(parts);
  });
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto& sizes = asked[i];
    const auto& weights = all_weights[i];
    checker.expect(weights.size() == sizes.size(), "wrong number of weights",
                   fmt::format("{} of sizes {}, {}", microbatches_text(static_cast<int>(sizes.size())),
                               list_text(sizes), counted(static_cast<int64_t>(weights.size()), "weight")),
                   "One weight for each micro-batch.");
    const auto samples = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
    std::vector<double> expected;
    for (const int64_t size : sizes) expected.push_back(static_cast<double>(size) / samples);
    for (size_t m = 0; m < sizes.size(); ++m) {
      if (!(std::abs(weights[m] - expected[m]) <= 1e-5 * expected[m]))
        fail_weights(checker, sizes, weights, expected);
    }
  }
  checker.proved(
      "each micro-batch counts by its samples: together they give the gradient of the whole batch");
}

}  // namespace

void check_split(const Seam& seam, Checker& checker) {
  check_batches(seam, checker);
  check_weights(seam, checker);
}

}  // namespace lab::gpipe
