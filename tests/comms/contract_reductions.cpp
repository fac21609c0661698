// Every type, operation and algorithm that adds, and the bits that come out.
#include "comms/contract.h"

#include <fmt/format.h>

#include <cstring>
#include <deque>

#include "comms/contract_buffers.h"
#include "lockstep/plan/collectives.h"
#include "plan/reference_machine.h"

namespace lockstep::test {

using plan::Collective;

namespace {

struct Reduction {
  Collective collective;
  std::string_view algorithm;
};

/// Every way to reduce that the engine has; "" is its own choice.
std::vector<Reduction> reductions(const Communicator& comm) {
  const bool shares = comm.engine() == "shm" || comm.engine() == "threads";
  std::vector<Reduction> all;
  for (const auto collective : {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter}) {
    all.push_back({collective, ""});
    for (const auto& algorithm : plan::algorithms_of(collective)) {
      if (algorithm.one_sided && !shares) continue;
      all.push_back({collective, algorithm.name});
    }
  }
  return all;
}

}  // namespace

Problems check_types(Communicator& comm) {
  Problems problems;
  const int world = comm.world_size();
  constexpr int64_t kCount = 201;  // 1.6 kB of the widest type: one-shot takes it
  const auto check_count = [&](int64_t count, DataType type, ReduceOp op, const auto& to_bytes,
                               double expected) {
    for (const auto& [collective, algorithm] : reductions(comm)) {
      std::vector<std::byte> data(static_cast<size_t>(count) * size_of(type));
      const auto element = to_bytes(static_cast<double>(comm.rank() % 2 + 1));
      const auto wanted = to_bytes(expected);
      for (size_t i = 0; i < static_cast<size_t>(count); ++i)
        std::memcpy(data.data() + i * sizeof(element), &element, sizeof(element));
      int64_t results = count;
      const Buffer buffer(data.data(), count, type);
      const CallOptions options = {.algorithm = algorithm};
      if (collective == Collective::kAllReduce) {
        comm.all_reduce(buffer, op, options);
      } else if (collective == Collective::kReduce) {
        comm.reduce(buffer, world - 1, op, options);
        if (comm.rank() != world - 1) results = 0;
      } else {
        results = count / world + (comm.rank() < count % world ? 1 : 0);
        std::vector<std::byte> output(static_cast<size_t>(results) * size_of(type));
        comm.reduce_scatter(buffer, Buffer(output.data(), results, type), op, options);
        data = std::move(output);
      }
      for (size_t i = 0; i < static_cast<size_t>(results); ++i) {
        if (std::memcmp(data.data() + i * sizeof(wanted), &wanted, sizeof(wanted)) == 0) continue;
        problems.push_back(fmt::format("{} {} of {} by '{}' in a world of {}: element {}",
                                       plan::name(collective), name(op), name(type), algorithm, world, i));
        break;
      }
    }
  };
  const auto check = [&](DataType type, ReduceOp op, const auto& to_bytes, double expected) {
    check_count(kCount, type, op, to_bytes, expected);
    if (op != ReduceOp::kSum) return;
    for (const int64_t count : {0, 1, world - 1, world + 1}) check_count(count, type, op, to_bytes, expected);
  };
  // Ranks hold 1, 2, 1, 2, ...: small enough to be exact in every type.
  double sum = 0, product = 1;
  for (int rank = 0; rank < world; ++rank) sum += rank % 2 + 1, product *= rank % 2 + 1;
  const double largest = world > 1 ? 2 : 1;
  const auto as_float = [](double x) { return static_cast<float>(x); };
  const auto as_double = [](double x) { return x; };
  const auto as_bfloat = [](double x) {
    const auto single = static_cast<float>(x);
    uint32_t bits = 0;
    std::memcpy(&bits, &single, 4);
    return static_cast<uint16_t>(bits >> 16);
  };
  const auto as_half = [](double x) {  // of whole numbers from 1 to 2048
    uint16_t bits = 0;
    int exponent = 0;
    for (; x >= 2; x /= 2) ++exponent;
    bits = static_cast<uint16_t>((exponent + 15) << 10 | static_cast<int>((x - 1) * 1024));
    return bits;
  };
  const auto as_i32 = [](double x) { return static_cast<int32_t>(x); };
  const auto as_i64 = [](double x) { return static_cast<int64_t>(x); };
  const auto as_u8 = [](double x) { return static_cast<uint8_t>(x); };
  const auto each = [&](DataType type, const auto& convert) {
    check(type, ReduceOp::kSum, convert, sum);
    check(type, ReduceOp::kProduct, convert, product);
    check(type, ReduceOp::kMin, convert, 1);
    check(type, ReduceOp::kMax, convert, largest);
    const bool exact_mean = world == 1 || world % 2 == 0;
    if (is_floating_point(type) && exact_mean) check(type, ReduceOp::kMean, convert, sum / world);
  };
  each(DataType::kFloat32, as_float);
  each(DataType::kFloat64, as_double);
  each(DataType::kFloat16, as_half);
  each(DataType::kBFloat16, as_bfloat);
  each(DataType::kInt32, as_i32);
  each(DataType::kInt64, as_i64);
  each(DataType::kUInt8, as_u8);
  const auto as_bool = [](double x) { return static_cast<uint8_t>(x > 1 ? 1 : 0); };
  check(DataType::kBool, ReduceOp::kSum, as_bool, largest);
  check(DataType::kBool, ReduceOp::kMax, as_bool, largest);
  check(DataType::kBool, ReduceOp::kProduct, as_bool, 1);
  check(DataType::kBool, ReduceOp::kMin, as_bool, 1);
  return problems;
}

Problems check_bits(Communicator& comm) {
  Problems problems;
  constexpr int64_t kCount = 331;
  for (const auto& [collective, algorithm] : reductions(comm)) {
    // A hierarchical plan depends on where the ranks are.
    if (collective != Collective::kAllReduce || algorithm.empty() || algorithm == "hierarchical") continue;
    // Sums of these values round, so that every order of adding gives other bits.
    const auto plan = plan::make_plan(collective, algorithm, {.world = comm.world_size()});
    const plan::reference::Data<float> data(plan, kCount);
    plan::reference::Machine<float> machine(plan, data, /*seed=*/1);
    if (!machine.run().empty()) return {fmt::format("{}: the reference could not run it", algorithm)};
    std::vector<float> own, expected;
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      const auto brought = data.contribution(comm.rank(), chunk);
      own.insert(own.end(), brought.begin(), brought.end());
      const auto& sum = machine.results()[static_cast<size_t>(comm.rank())][static_cast<size_t>(chunk)];
      expected.insert(expected.end(), sum.begin(), sum.begin() + data.elements(chunk));
    }
    for (const bool shared : {false, true}) {
      GuardedFloats found(comm, shared ? Place::kShared : Place::kPrivate, own);
      comm.all_reduce(found, ReduceOp::kSum, {.algorithm = algorithm});
      if (found.content(problems, std::string(algorithm)) != expected)
        problems.push_back(fmt::format("{} gives other bits than its plan", algorithm));
    }
  }
  return problems;
}

Problems check_coalesced(Communicator& comm) {
  Problems problems;
  const int world = comm.world_size();
  const std::vector<std::vector<int64_t>> shapes = {
      {}, {0}, {1}, {3, 0, 1, 5}, {1000, 1, 7, 100'003, 0, 64, 5}, {0, 0}, std::vector<int64_t>(300, 11)};
  for (const auto& [collective, algorithm] : reductions(comm)) {
    if (collective != Collective::kAllReduce || algorithm == "one-shot") continue;
    for (const auto& counts : shapes) {
      for (const Place place : {Place::kShared, Place::kPrivate, Place::kMixed}) {
        for (const bool waits : {true, false}) {
          const std::string what = fmt::format("{} parts by '{}'", counts.size(), algorithm);
          std::deque<GuardedFloats> memory;
          std::vector<Buffer> parts;
          int64_t first = 0;
          for (const int64_t count : counts) {
            parts.push_back(memory.emplace_back(comm, place, values(comm.rank(), count, first)));
            first += count;
          }
          const CallOptions options = {.algorithm = algorithm};
          if (waits) {
            comm.all_reduce_coalesced(parts, ReduceOp::kMean, options);
          } else {
            comm.iall_reduce_coalesced(parts, ReduceOp::kMean, options).wait();
          }
          first = 0;
          for (size_t i = 0; i < counts.size(); ++i) {
            expect(problems, what, memory[i].content(problems, what), [&](int64_t element) {
              return sum_of(world, first + element) / static_cast<float>(world);
            });
            first += counts[i];
          }
        }
      }
    }
  }
  return problems;
}

}  // namespace lockstep::test
