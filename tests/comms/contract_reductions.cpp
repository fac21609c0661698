// Every type, operation and algorithm that adds, and the bits that come out.
#include "comms/contract.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <deque>

#include "comms/combine_oracle.h"
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

/// What this rank ends with: of a reduce nothing but on the last rank, of a reduce-scatter its part.
std::vector<std::byte> reduced(Communicator& comm, const Reduction& reduction, DataType type, ReduceOp op,
                               std::vector<std::byte> data) {
  const int world = comm.world_size();
  const auto count = static_cast<int64_t>(data.size() / size_of(type));
  const Buffer buffer(data.data(), count, type);
  const CallOptions options = {.algorithm = reduction.algorithm};
  if (reduction.collective == Collective::kAllReduce) {
    comm.all_reduce(buffer, op, options);
  } else if (reduction.collective == Collective::kReduce) {
    comm.reduce(buffer, world - 1, op, options);
    if (comm.rank() != world - 1) data.clear();
  } else {
    const int64_t results = count / world + (comm.rank() < count % world ? 1 : 0);
    std::vector<std::byte> output(static_cast<size_t>(results) * size_of(type));
    comm.reduce_scatter(buffer, Buffer(output.data(), results, type), op, options);
    return output;
  }
  return data;
}

std::string text_of(const Reduction& reduction, DataType type, ReduceOp op, int world) {
  return fmt::format("{} {} of {} by '{}' in a world of {}", plan::name(reduction.collective), name(op),
                     name(type), reduction.algorithm, world);
}

/// float32 under one operation, for the reference machine. Every other one is a zero, an infinity or a NaN.
template <ReduceOp op>
struct Folded {
  float number = 0;

  static Folded of(uint64_t bits) {
    if (bits % 2 == 0) {
      const auto which = static_cast<unsigned>(bits / 2 % comms::oracle::kSpecials);
      return {std::bit_cast<float>(
          static_cast<uint32_t>(comms::oracle::special(DataType::kFloat32, which, bits >> 16)))};
    }
    // Sums of these round, so that every order of adding gives other bits.
    return {static_cast<float>(1 + bits % 8191) / static_cast<float>(1 + (bits >> 32) % 8191)};
  }
  friend Folded operator+(Folded a, Folded b) { return {comms::oracle::fold(op, a.number, b.number)}; }
};

template <ReduceOp op>
void check_bits_of(Communicator& comm, Problems& problems) {
  constexpr int64_t kCount = 331;
  const auto bits_of = [](const std::vector<float>& numbers) {
    std::vector<uint32_t> bits;
    for (const float number : numbers) bits.push_back(std::bit_cast<uint32_t>(number));
    return bits;
  };
  for (const auto& [collective, algorithm] : reductions(comm)) {
    // A hierarchical plan depends on where the ranks are.
    if (collective != Collective::kAllReduce || algorithm.empty() || algorithm == "hierarchical") continue;
    const auto plan = plan::make_plan(collective, algorithm, {.world = comm.world_size()});
    const plan::reference::Data<Folded<op>> data(plan, kCount);
    plan::reference::Machine<Folded<op>> machine(plan, data, /*seed=*/1);
    if (!machine.run().empty()) {
      problems.push_back(fmt::format("{}: the reference could not run it", algorithm));
      return;
    }
    std::vector<float> own, expected;
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      for (const auto& brought : data.contribution(comm.rank(), chunk)) own.push_back(brought.number);
      const auto& sum = machine.results()[static_cast<size_t>(comm.rank())][static_cast<size_t>(chunk)];
      for (size_t i = 0; i < static_cast<size_t>(data.elements(chunk)); ++i)
        expected.push_back(sum[i].number);
    }
    for (float& number : expected) {
      if (op == ReduceOp::kMean && comm.world_size() > 1) number /= static_cast<float>(comm.world_size());
    }
    for (const bool shared : {false, true}) {
      GuardedFloats found(comm, shared ? Place::kShared : Place::kPrivate, own);
      comm.all_reduce(found, op, {.algorithm = algorithm});
      if (bits_of(found.content(problems, std::string(algorithm))) != bits_of(expected))
        problems.push_back(fmt::format("{} by {} gives other bits than its plan", name(op), algorithm));
    }
  }
}

}  // namespace

Problems check_types(Communicator& comm) {
  Problems problems;
  const int world = comm.world_size();
  constexpr int64_t kCount = 201;  // 1.6 kB of the widest type: one-shot takes it
  const auto check_count = [&](int64_t count, DataType type, ReduceOp op, const auto& to_bytes,
                               double expected) {
    for (const auto& reduction : reductions(comm)) {
      std::vector<std::byte> data(static_cast<size_t>(count) * size_of(type));
      const auto element = to_bytes(static_cast<double>(comm.rank() % 2 + 1));
      const auto wanted = to_bytes(expected);
      for (size_t i = 0; i < static_cast<size_t>(count); ++i)
        std::memcpy(data.data() + i * sizeof(element), &element, sizeof(element));
      const auto results = reduced(comm, reduction, type, op, std::move(data));
      for (size_t i = 0; i < results.size() / size_of(type); ++i) {
        if (std::memcmp(results.data() + i * sizeof(wanted), &wanted, sizeof(wanted)) == 0) continue;
        problems.push_back(fmt::format("{}: element {}", text_of(reduction, type, op, world), i));
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
  check_bits_of<ReduceOp::kSum>(comm, problems);
  check_bits_of<ReduceOp::kProduct>(comm, problems);
  check_bits_of<ReduceOp::kMin>(comm, problems);
  check_bits_of<ReduceOp::kMax>(comm, problems);
  check_bits_of<ReduceOp::kMean>(comm, problems);
  return problems;
}

Problems check_special_values(Communicator& comm) {
  Problems problems;
  const int world = comm.world_size();
  constexpr unsigned kKinds = comms::oracle::kSpecials;
  constexpr size_t kCount = kKinds * kKinds;  // ranks 0 and 1 bring every pair, the others whatever comes
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBFloat16}) {
    const size_t width = size_of(type);
    std::vector<std::vector<std::byte>> brought;
    std::vector<const std::byte*> sources;
    for (unsigned rank = 0; rank < static_cast<unsigned>(world); ++rank) {
      auto& data = brought.emplace_back(kCount * width);
      for (unsigned i = 0; i < kCount; ++i) {
        const unsigned kind = rank == 0 ? i : rank == 1 ? i / kKinds : (i + 1) * (rank + 5) / 3;
        const uint64_t bits = comms::oracle::special(type, kind % kKinds, rank + 1);  // payloads by rank
        std::memcpy(&data[i * width], &bits, width);
      }
      sources.push_back(data.data());
    }
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kMean}) {
      const auto in_rank_order = comms::oracle::combine(type, op, sources, kCount, world);
      for (const auto& reduction : reductions(comm)) {
        auto found = reduced(comm, reduction, type, op, brought[static_cast<size_t>(comm.rank())]);
        if (reduction.collective == Collective::kAllReduce) {
          std::vector<std::byte> all(found.size() * static_cast<size_t>(world));
          comm.all_gather(Buffer(found.data(), std::ssize(found), DataType::kUInt8),
                          Buffer(all.data(), std::ssize(all), DataType::kUInt8));
          for (int rank = 0; rank < world; ++rank) {
            if (std::equal(found.begin(), found.end(), all.begin() + rank * std::ssize(found))) continue;
            problems.push_back(fmt::format("{}: rank {} has other bits than rank {}",
                                           text_of(reduction, type, op, world), rank, comm.rank()));
          }
        }
        if (reduction.algorithm.empty() ||
            plan::make_plan(reduction.collective, reduction.algorithm, {.world = world}).order !=
                plan::Order::kRank) {
          continue;
        }
        const bool scattered = reduction.collective == Collective::kReduceScatter;
        const auto begin = scattered ? plan::part_begin(kCount, world, comm.rank()) : 0;
        if (!std::equal(found.begin(), found.end(),
                        in_rank_order.begin() + begin * static_cast<int64_t>(width))) {
          problems.push_back(text_of(reduction, type, op, world) + ": not the bits of rank order");
        }
      }
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
