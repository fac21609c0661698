#include "comms/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "comms/contract_buffers.h"
#include "lockstep/error.h"
#include "lockstep/plan/collectives.h"

namespace lockstep::test {

namespace {

using plan::Collective;

std::vector<int64_t> counts(int world) {
  return {0, 1, world - 1, world, world + 1, 1000, 5000, 70'001};
}

void check_all_reduce(Communicator& comm, const CallOptions& options, int64_t count, Problems& problems) {
  const int world = comm.world_size();
  const auto what = [&](const char* which) {
    return fmt::format("all_reduce {} by {}, {} of {}", which, options.algorithm, count, world);
  };
  auto data = values(comm.rank(), count);
  comm.all_reduce(data, ReduceOp::kSum, options);
  expect(problems, what("in place"), data, [&](int64_t i) { return sum_of(world, i); });
  auto input = values(comm.rank(), count);
  std::vector<float> output(input.size());
  comm.all_reduce(input, output, ReduceOp::kSum, options);
  expect(problems, what("out of place"), output, [&](int64_t i) { return sum_of(world, i); });
  expect(problems, what("input"), input, [&](int64_t i) { return value(comm.rank(), i); });
  // In memory that may be shared, beside something that must not be touched, at an odd place.
  const auto memory = comm.allocate(static_cast<size_t>(count + 2) * sizeof(float));
  const std::span<float> all(static_cast<float*>(memory.get()), static_cast<size_t>(count + 2));
  std::fill(all.begin(), all.end(), -7.0F);
  const auto inner = all.subspan(1, static_cast<size_t>(count));
  std::copy(input.begin(), input.end(), inner.begin());
  comm.all_reduce(Buffer(inner), ReduceOp::kSum, options);
  comm.barrier();
  expect(problems, what("shared"), std::vector<float>(inner.begin(), inner.end()),
         [&](int64_t i) { return sum_of(world, i); });
  if (all.front() != -7.0F || all.back() != -7.0F) problems.push_back(what("beside the buffer"));
}

/// Where the buffers of a call lie, and of which type it takes their elements to be.
struct Form {
  Place place = Place::kPrivate;
  DataType type = DataType::kFloat32;
};

void check_rooted(Communicator& comm, Collective collective, const CallOptions& options, const Form& form,
                  int64_t count, int root, Problems& problems) {
  const int world = comm.world_size();
  const int rank = comm.rank();
  const std::string what = fmt::format("{} by {}, {} of {}, root {}", plan::name(collective),
                                       options.algorithm, count, world, root);
  if (collective == Collective::kBroadcast) {
    GuardedFloats data(comm, form.place, values(rank, count), form.type);
    comm.broadcast(data, root, options);
    expect(problems, what, data.content(problems, what), [&](int64_t i) { return value(root, i); });
  } else if (collective == Collective::kReduce) {
    GuardedFloats data(comm, form.place, values(rank, count));
    comm.reduce(data, root, ReduceOp::kSum, options);
    const auto found = data.content(problems, what);
    if (rank == root) expect(problems, what, found, [&](int64_t i) { return sum_of(world, i); });
  } else if (collective == Collective::kScatter) {
    GuardedFloats input(comm, form.place, rank == root ? values(root, count * world) : std::vector<float>(),
                        form.type);
    GuardedFloats output(comm, form.place, std::vector<float>(static_cast<size_t>(count)), form.type);
    comm.scatter(rank == root ? Buffer(input) : Buffer(), output, root, options);
    expect(problems, what, output.content(problems, what),
           [&](int64_t i) { return value(root, count * rank + i); });
    expect(problems, what + ", input", input.content(problems, what),
           [&](int64_t i) { return value(root, i); });
  } else {
    GuardedFloats input(comm, form.place, values(rank, count, 3), form.type);
    GuardedFloats output(comm, form.place,
                         std::vector<float>(static_cast<size_t>(rank == root ? count * world : 0)),
                         form.type);
    comm.gather(input, rank == root ? Buffer(output) : Buffer(), root, options);
    expect(problems, what, output.content(problems, what),
           [&](int64_t i) { return value(static_cast<int>(i / count), i % count + 3); });
  }
}

void check_flat(Communicator& comm, Collective collective, const CallOptions& options, const Form& form,
                int64_t count, Problems& problems) {
  const int world = comm.world_size();
  const int rank = comm.rank();
  const std::string what =
      fmt::format("{} by {}, {} of {}", plan::name(collective), options.algorithm, count, world);
  if (collective == Collective::kAllGather) {
    GuardedFloats input(comm, form.place, values(rank, count, 3), form.type);
    GuardedFloats output(comm, form.place, std::vector<float>(static_cast<size_t>(count * world)), form.type);
    comm.all_gather(input, output, options);
    expect(problems, what, output.content(problems, what),
           [&](int64_t i) { return value(static_cast<int>(i / count), i % count + 3); });
  } else if (collective == Collective::kReduceScatter) {
    GuardedFloats input(comm, form.place, values(rank, count));
    const int64_t base = count / world, longer = count % world;
    const int64_t begin = base * rank + std::min<int64_t>(rank, longer);
    GuardedFloats output(comm, form.place,
                         std::vector<float>(static_cast<size_t>(base + (rank < longer ? 1 : 0))));
    comm.reduce_scatter(input, output, ReduceOp::kSum, options);
    expect(problems, what, output.content(problems, what),
           [&](int64_t i) { return sum_of(world, begin + i); });
    expect(problems, what + ", input", input.content(problems, what),
           [&](int64_t i) { return value(rank, i); });
  } else {
    GuardedFloats input(comm, form.place, values(rank, count * world), form.type);
    GuardedFloats output(comm, form.place, std::vector<float>(static_cast<size_t>(count * world)), form.type);
    comm.all_to_all(input, output, options);
    expect(problems, what, output.content(problems, what),
           [&](int64_t i) { return value(static_cast<int>(i / count), count * rank + i % count); });
  }
}

constexpr std::array kAllTypes = {DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
                                  DataType::kBFloat16, DataType::kInt32,   DataType::kInt64,
                                  DataType::kUInt8,    DataType::kBool};

void check_form(Communicator& comm, const plan::Algorithm& algorithm, const Form& form, int64_t count,
                Problems& problems) {
  const CallOptions options = {.algorithm = algorithm.name};
  switch (algorithm.collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return check_flat(comm, algorithm.collective, options, form, count, problems);
    default:
      for (const int root : {0, comm.world_size() / 2, comm.world_size() - 1}) {
        check_rooted(comm, algorithm.collective, options, form, count, root, problems);
      }
  }
}

}  // namespace

Problems check_collectives(Communicator& comm) {
  Problems problems;
  const int world = comm.world_size();
  for (const auto& algorithm : plan::algorithms()) {
    if (algorithm.one_sided && comm.engine() != "shm" && comm.engine() != "threads") continue;
    const CallOptions options = {.algorithm = algorithm.name};
    if (algorithm.collective == Collective::kBarrier) {
      for (int i = 0; i < 3; ++i) comm.barrier(options);
      continue;
    }
    for (const int64_t count : counts(world)) {
      if (algorithm.name == "one-shot" && count > 500) continue;
      if (algorithm.collective == Collective::kAllReduce) {
        check_all_reduce(comm, options, count, problems);
        continue;
      }
      for (const Place place : {Place::kPrivate, Place::kShared, Place::kMixed}) {
        if (place != Place::kPrivate && !algorithm.one_sided) continue;
        check_form(comm, algorithm, {.place = place}, count, problems);
      }
    }
    if (is_reduction(algorithm.collective)) continue;  // check_types() does
    const bool has_part_of_all =
        algorithm.collective == Collective::kScatter || algorithm.collective == Collective::kGather;
    for (const auto type : kAllTypes) {
      // A new group has no scratch memory yet that could happen to be large enough.
      auto fresh = has_part_of_all ? comm.split(0) : std::optional(comm);
      check_form(*fresh, algorithm, {.place = Place::kShared, .type = type}, 1000, problems);
    }
  }
  try {
    check_all_reduce(comm, {.algorithm = "native"}, 10, problems);
    problems.emplace_back("an algorithm that is not a plan was run");
  } catch (const UsageError&) {
  }
  return problems;
}

std::string check_all(Communicator& comm) {
  std::string text;
  for (const auto check : {check_collectives, check_types, check_bits, check_special_values, check_coalesced,
                           check_messages, check_any_order, check_async, check_split, check_refusals}) {
    for (const auto& problem : check(comm)) text += problem + "\n";
  }
  return text;
}

}  // namespace lockstep::test
