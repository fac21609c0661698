#include "comms/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/plan/collectives.h"
#include "plan/reference_machine.h"

namespace lockstep::test {

namespace {

using plan::Collective;
using Problems = std::vector<std::string>;

/// Distinct for every rank and element, and exactly summable: a misplaced element shows.
float value(int rank, int64_t element) {
  return static_cast<float>((rank + 1) * 1024 + element % 1021);
}

float sum_of(int world, int64_t element) {
  float sum = 0;
  for (int rank = 0; rank < world; ++rank) sum += value(rank, element);
  return sum;
}

std::vector<float> values(int rank, int64_t count, int64_t first = 0) {
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
class Floats {
 public:
  Floats(Communicator& comm, Place place, const std::vector<float>& content,
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
    Floats data(comm, form.place, values(rank, count), form.type);
    comm.broadcast(data, root, options);
    expect(problems, what, data.content(problems, what), [&](int64_t i) { return value(root, i); });
  } else if (collective == Collective::kReduce) {
    Floats data(comm, form.place, values(rank, count));
    comm.reduce(data, root, ReduceOp::kSum, options);
    const auto found = data.content(problems, what);
    if (rank == root) expect(problems, what, found, [&](int64_t i) { return sum_of(world, i); });
  } else if (collective == Collective::kScatter) {
    Floats input(comm, form.place, rank == root ? values(root, count * world) : std::vector<float>(),
                 form.type);
    Floats output(comm, form.place, std::vector<float>(static_cast<size_t>(count)), form.type);
    comm.scatter(input, output, root, options);
    expect(problems, what, output.content(problems, what),
           [&](int64_t i) { return value(root, count * rank + i); });
    expect(problems, what + ", input", input.content(problems, what),
           [&](int64_t i) { return value(root, i); });
  } else {
    Floats input(comm, form.place, values(rank, count, 3), form.type);
    Floats output(comm, form.place, std::vector<float>(static_cast<size_t>(rank == root ? count * world : 0)),
                  form.type);
    comm.gather(input, output, root, options);
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
    Floats input(comm, form.place, values(rank, count, 3), form.type);
    Floats output(comm, form.place, std::vector<float>(static_cast<size_t>(count * world)), form.type);
    comm.all_gather(input, output, options);
    expect(problems, what, output.content(problems, what),
           [&](int64_t i) { return value(static_cast<int>(i / count), i % count + 3); });
  } else if (collective == Collective::kReduceScatter) {
    Floats input(comm, form.place, values(rank, count));
    const int64_t base = count / world, longer = count % world;
    const int64_t begin = base * rank + std::min<int64_t>(rank, longer);
    Floats output(comm, form.place, std::vector<float>(static_cast<size_t>(base + (rank < longer ? 1 : 0))));
    comm.reduce_scatter(input, output, ReduceOp::kSum, options);
    expect(problems, what, output.content(problems, what),
           [&](int64_t i) { return sum_of(world, begin + i); });
    expect(problems, what + ", input", input.content(problems, what),
           [&](int64_t i) { return value(rank, i); });
  } else {
    Floats input(comm, form.place, values(rank, count * world), form.type);
    Floats output(comm, form.place, std::vector<float>(static_cast<size_t>(count * world)), form.type);
    comm.all_to_all(input, output, options);
    expect(problems, what, output.content(problems, what),
           [&](int64_t i) { return value(static_cast<int>(i / count), count * rank + i % count); });
  }
}

constexpr std::array kAllTypes = {DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
                                  DataType::kBFloat16, DataType::kInt32,   DataType::kInt64,
                                  DataType::kUInt8,    DataType::kBool};

bool is_reduction(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

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
    for (const auto type : kAllTypes) {
      check_form(comm, algorithm, {.place = Place::kShared, .type = type}, 1000, problems);
    }
  }
  if (comm.engine() == "gloo" || comm.engine() == "mpi") {
    for (const int64_t count : counts(world))
      check_all_reduce(comm, {.algorithm = "native"}, count, problems);
  }
  return problems;
}

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
      Floats found(comm, shared ? Place::kShared : Place::kPrivate, own);
      comm.all_reduce(found, ReduceOp::kSum, {.algorithm = algorithm});
      if (found.content(problems, std::string(algorithm)) != expected)
        problems.push_back(fmt::format("{} gives other bits than its plan", algorithm));
    }
  }
  return problems;
}

Problems check_messages(Communicator& comm) {
  Problems problems;
  const int world = comm.world_size();
  const int rank = comm.rank();
  if (world == 1) return problems;
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{300'000}}) {
    auto out = values(rank, count);
    std::vector<float> in(out.size());
    // Everybody sends before it receives: only works if both go on at once.
    const Work sent = comm.isend(out, comm.get_next_rank(), 5);
    const Work received = comm.irecv(in, comm.get_prev_rank(), 5);
    received.wait();
    sent.wait();
    expect(problems, fmt::format("round the ring, {}", count), in,
           [&](int64_t i) { return value(comm.get_prev_rank(), i); });
    if (rank == 0) {
      comm.send(out, 1, 6);
    } else if (rank == 1) {
      comm.recv(in, 0, 6);
      expect(problems, "blocking", in, [&](int64_t i) { return value(0, i); });
    }
  }
  // A message is sent while its sender does something else: here, waits for a word over the control plane.
  for (const Place place : {Place::kPrivate, Place::kShared}) {
    if (comm.engine() == "mpi") break;  // goes on within calls of MPI only
    Floats out(comm, place, values(rank, 100'000));
    Floats in(comm, place, std::vector<float>(100'000));
    Work sent, received;
    if (rank == 0) sent = comm.isend(out, 1, 9);
    if (rank == 1) {
      received = comm.irecv(in, 0, 9);
      received.wait();
      expect(problems, "while the sender is elsewhere", in.content(problems, "received"),
             [&](int64_t i) { return value(0, i); });
    }
    comm.split(0);
    if (rank == 0) sent.wait();
  }
  // Several at once to one peer, and some that are awaited meanwhile: all go on while their ranks are
  // elsewhere.
  for (const Place place : {Place::kPrivate, Place::kShared}) {
    if (comm.engine() == "mpi") break;
    std::vector<Floats> outs, ins;
    std::vector<Work> works;
    for (int k = 0; k < 3; ++k) {
      outs.emplace_back(comm, place, values(rank, 40'000, k));
      ins.emplace_back(comm, place, std::vector<float>(40'000));
    }
    if (rank == 1) {
      for (auto& in : ins) works.push_back(comm.irecv(in, 0, 11));
    }
    comm.barrier();
    if (rank == 0) {
      for (int k = 0; k < 2; ++k) works.push_back(comm.isend(outs[static_cast<size_t>(k)], 1, 11));
      comm.send(outs[2], 1, 11);
    }
    comm.barrier();
    for (const auto& work : works) work.wait();
    for (int k = 0; rank == 1 && k < 3; ++k) {
      expect(problems, "several at once", ins[static_cast<size_t>(k)].content(problems, "several at once"),
             [&](int64_t i) { return value(0, k + i); });
    }
  }
  // Messages that nobody waits for arrive all the same; buffers must only stay.
  auto dropped = values(rank, 200'000);
  std::vector<float> taken(dropped.size());
  comm.isend(dropped, comm.get_next_rank(), 8);
  comm.recv(taken, comm.get_prev_rank(), 8);
  expect(problems, "dropped", taken, [&](int64_t i) { return value(comm.get_prev_rank(), i); });
  comm.barrier();
  // Many in flight, in order, with a collective in between.
  std::vector<std::vector<float>> outs, ins(20, std::vector<float>(100));
  std::vector<Work> works;
  for (int k = 0; k < 20; ++k) outs.push_back(values(rank, 100, k));
  for (auto& in : ins) works.push_back(comm.irecv(in, comm.get_prev_rank()));
  comm.barrier();
  for (auto& out : outs) works.push_back(comm.isend(out, comm.get_next_rank()));
  for (const auto& work : works) work.wait();
  for (int k = 0; k < 20; ++k) {
    expect(problems, fmt::format("in order, {}", k), ins[static_cast<size_t>(k)],
           [&](int64_t i) { return value(comm.get_prev_rank(), k + i); });
  }
  return problems;
}

Problems check_async(Communicator& comm) {
  Problems problems;
  const int world = comm.world_size();
  std::vector<std::vector<float>> data;
  for (int k = 0; k < 10; ++k) data.push_back(values(comm.rank(), 1 + 7000 * (k % 3), k));
  std::vector<Work> works;
  works.reserve(data.size());
  for (auto& one : data) works.push_back(comm.iall_reduce(one));
  auto blocking = values(comm.rank(), 10);
  comm.all_reduce(blocking);  // after all that was queued
  for (const auto& work : works) {
    if (!work.is_completed()) problems.push_back("a blocking call has overtaken queued work");
    work.wait();
  }
  for (int k = 0; k < 10; ++k) {
    expect(problems, fmt::format("queued {}", k), data[static_cast<size_t>(k)],
           [&](int64_t i) { return sum_of(world, k + i); });
  }
  expect(problems, "blocking after queued", blocking, [&](int64_t i) { return sum_of(world, i); });
  comm.ibarrier().wait();
  return problems;
}

Problems check_split(Communicator& comm) {
  Problems problems;
  const int rank = comm.rank();
  auto halves = comm.split(rank % 2, -rank);  // in reversed order
  if (!halves) return {"split gave no group"};
  std::vector<float> data = {static_cast<float>(rank)};
  float wanted = 0;
  int members = 0;
  for (int other = rank % 2; other < comm.world_size(); other += 2) {
    wanted += static_cast<float>(other);
    ++members;
  }
  if (halves->world_size() != members) problems.push_back("a split group has the wrong size");
  for (int i = 0; i < 5; ++i) {
    data = {static_cast<float>(rank)};
    halves->all_reduce(data);
    expect(problems, "in a half", data, [&](int64_t) { return wanted; });
    std::vector<float> all = {1.0F};
    comm.all_reduce(all);
    expect(problems, "in the whole", all, [&](int64_t) { return static_cast<float>(comm.world_size()); });
  }
  data = {static_cast<float>(rank)};
  halves->broadcast(data, 0);  // the highest rank of the half comes first
  const int highest = rank % 2 + 2 * (members - 1);
  expect(problems, "order by key", data, [&](int64_t) { return static_cast<float>(highest); });
  if (comm.split(rank == 0 ? 0 : -1).has_value() != (rank == 0))
    problems.push_back("a negative colour is in a group");
  return problems;
}

std::string check_all(Communicator& comm) {
  std::string text;
  for (const auto check :
       {check_collectives, check_types, check_bits, check_messages, check_async, check_split}) {
    for (const auto& problem : check(comm)) text += problem + "\n";
  }
  return text;
}

}  // namespace lockstep::test
