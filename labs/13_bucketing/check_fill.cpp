#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "13_bucketing/check_parts.h"

namespace lab::bucketing {

namespace {

struct Input {
  std::vector<int64_t> bytes;
  int64_t cap = 0;
  bool is_large = false;  ///< Sums do not fit into 32 bits.
};

std::vector<Input> make_inputs(const Checker& checker) {
  std::vector<Input> inputs = {
      {{256, 32, 256, 32, 256, 32}, 600},
      {{256, 32, 256, 32, 256, 32}, 576},  // exactly full
      {{32, 32, 4096, 32, 32}, 100},       // one larger than the cap
      {{4096, 32, 32}, 100},
      {{8, 16, 24}, 0},
      {{8, 16, 24}, 1 << 20},
      {{8}, 100},
      {{}, 100},
      {{1'500'000'004, 1'500'000'000}, 3'000'000'004, true},
      {{1'500'000'004, 1'500'000'000}, 3'000'000'000, true},
  };
  for (uint64_t round = 0; round < 40; ++round) {
    const bool is_large = round >= 30;
    auto& input = inputs.emplace_back();
    const int64_t count = round % 10 == 1 && !is_large ? checker.draw_between(round, 257, 300)
                                                       : checker.draw_between(round, 1, 13);
    const int64_t unit = is_large ? 10'000'000 : 1;
    for (int64_t i = 0; i < count; ++i) {
      const auto salt = 1000 + round * 1000 + static_cast<uint64_t>(i);
      input.bytes.push_back(4 * checker.draw_between(salt, unit, 50 * unit));
    }
    input.cap = checker.draw_between(500 + round, 0, 400 * unit);
    input.is_large = is_large;
  }
  std::stable_partition(inputs.begin(), inputs.end(), [](const auto& input) { return !input.is_large; });
  return inputs;
}

std::string listed(const std::vector<int64_t>& bytes) {
  if (bytes.size() <= 20) return fmt::format("{}", fmt::join(bytes, ", "));
  return fmt::format("{}, ... ({} in all)", fmt::join(bytes.begin(), bytes.begin() + 20, ", "), bytes.size());
}

void expect_filled(Checker& checker, const Input& input, const Buckets& buckets) {
  const auto& [bytes, cap, is_large] = input;
  const auto given = fmt::format("gradients of {} bytes with a cap of {}", listed(bytes), cap);
  if (is_large && buckets != filled(bytes, cap)) {
    checker.fail("bytes overflow",
                 fmt::format("{}: {}, expected {}", given, counted(std::ssize(buckets), "bucket"),
                             filled(bytes, cap).size()),
                 "Sizes and the cap are int64_t. An int ends at 2 GiB, and a float rounds: count bytes in an "
                 "int64_t, too.");
  }
  const auto found = buckets.size() <= 20 ? fmt::format("{}: buckets {}", given, buckets)
                                          : fmt::format("{}: {} buckets", given, buckets.size());
  if (bytes.empty()) {
    checker.expect(
        buckets.empty(), "buckets for nothing", "no gradients at all: buckets " + fmt::format("{}", buckets),
        "A model whose parameters are all frozen has none to send. Open a bucket only when there is "
        "a parameter to put into it.");
    return;
  }
  checker.expect(!buckets.empty(), "no buckets", given + ": fill_buckets returned none",
                 "Open a bucket, go through the parameters from the last to the first, and open another one "
                 "whenever the next does not fit.");
  std::vector<int> times(bytes.size());
  std::vector<size_t> order;
  for (const auto& bucket : buckets) {
    checker.expect(!bucket.empty(), "empty bucket", found,
                   "A bucket that holds nothing would still be sent. Open one only when there is a parameter "
                   "to put into it.");
    for (const size_t i : bucket) {
      checker.expect(i < bytes.size(), "no such parameter", found,
                     fmt::format("There is no parameter {}: they go from 0 to {}.", i, bytes.size() - 1));
      ++times[i];
      order.push_back(i);
    }
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    checker.expect(times[i] > 0, "parameter in no bucket",
                   fmt::format("{}; parameter {} is in none", found, i),
                   "Its gradient would never be averaged, and replicas would drift apart. The last bucket "
                   "counts even if it is not full.");
    checker.expect(times[i] == 1, "parameter in two buckets",
                   fmt::format("{}; parameter {} is in {}", found, i, times[i]),
                   "Each gradient is sent once: put it into one bucket, then go on to the next parameter.");
  }
  checker.expect(std::is_sorted(order.rbegin(), order.rend()), "not in reverse order", found,
                 "Backward brings the last layer's gradients first. Buckets that hold the first layer's come "
                 "last: go from the last parameter to the first.");
  for (size_t b = 0; b < buckets.size(); ++b) {
    checker.expect(buckets[b].size() == 1 || sum_of(bytes, buckets[b]) <= cap, "bucket over the cap",
                   fmt::format("{}; bucket {} holds {} bytes", found, b, sum_of(bytes, buckets[b])),
                   "A gradient that does not fit opens the next bucket. One that is larger than the cap gets "
                   "a bucket of its own.");
    checker.expect(
        b == 0 || sum_of(bytes, buckets[b - 1]) + bytes[buckets[b][0]] > cap, "buckets not filled",
        fmt::format("{}; parameter {} would have fitted into bucket {}", found, buckets[b][0], b - 1),
        "Open a new bucket only if the next gradient does not fit into the open one.");
  }
}

}  // namespace

Buckets filled(const std::vector<int64_t>& bytes, int64_t cap) {
  Buckets buckets;
  for (size_t i = bytes.size(); i-- > 0;) {
    if (buckets.empty() || sum_of(bytes, buckets.back()) + bytes[i] > cap) buckets.emplace_back();
    buckets.back().push_back(i);
  }
  return buckets;
}

std::vector<int64_t> bytes_of(const Net& net) {
  std::vector<int64_t> bytes;
  for (const auto& parameter : trainable_parameters(net)) bytes.push_back(parameter.numel() * 4);
  return bytes;
}

int64_t sum_of(const std::vector<int64_t>& bytes, const std::vector<size_t>& bucket) {
  return std::accumulate(bucket.begin(), bucket.end(), int64_t{0},
                         [&](int64_t sum, size_t i) { return sum + bytes[i]; });
}

void check_fill(const Seam& seam, Checker& checker) {
  checker.in_world(0);
  const auto inputs = make_inputs(checker);
  const auto found = checker.in_child([&] {
    std::vector<Buckets> all;
    for (const auto& [bytes, cap, is_large] : inputs) {
      tell_progress(fmt::format("fill_buckets of {} with a cap of {}",
                                counted(static_cast<int64_t>(bytes.size()), "gradient"), cap));
      all.push_back(seam.fill_buckets(bytes, cap));
    }
    return all;
  });
  for (size_t i = 0; i < inputs.size(); ++i) expect_filled(checker, inputs[i], found[i]);
  checker.proved(
      "every parameter is in one bucket, from the last to the first, each as full as the cap lets, also "
      "above "
      "2 GiB");
}

}  // namespace lab::bucketing
