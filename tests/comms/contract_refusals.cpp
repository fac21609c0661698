// What every call refuses, by name and value and before anything moves, and what it must not refuse.
#include "comms/contract.h"

#include <fmt/format.h>

#include <functional>
#include <limits>

#include "comms/contract_buffers.h"
#include "lockstep/error.h"

namespace lockstep::test {

namespace {

constexpr int64_t kEach = 4;  // elements of each rank

struct OneBuffer {
  std::string_view name;
  std::function<void(Buffer)> call;
};

struct TwoBuffers {
  enum class Shape : uint8_t { kEqual, kGathers, kScatters, kExchanges };
  std::string_view name;
  Shape shape;
  std::function<void(Buffer input, Buffer output, int root)> call;
  std::function<float(int64_t element)> result;
};

/// All calls of a communicator that take one buffer, blocking and not.
std::vector<OneBuffer> calls_of_one(Communicator& comm) {
  const int peer = comm.get_next_rank();
  return {
      {"all_reduce", [&](Buffer data) { comm.all_reduce(data); }},
      {"all_reduce", [&](Buffer data) { comm.iall_reduce(data); }},
      {"all_reduce", [&](Buffer data) { comm.all_reduce_coalesced({data}); }},
      {"all_reduce", [&](Buffer data) { comm.iall_reduce_coalesced({data}); }},
      {"broadcast", [&](Buffer data) { comm.broadcast(data); }},
      {"broadcast", [&](Buffer data) { comm.ibroadcast(data); }},
      {"reduce", [&](Buffer data) { comm.reduce(data); }},
      {"reduce", [&](Buffer data) { comm.ireduce(data); }},
      {"send", [&, peer](Buffer data) { comm.send(data, peer); }},
      {"send", [&, peer](Buffer data) { comm.isend(data, peer); }},
      {"recv", [&, peer](Buffer data) { comm.recv(data, peer); }},
      {"recv", [&, peer](Buffer data) { comm.irecv(data, peer); }},
  };
}

/// Those that take two.
std::vector<TwoBuffers> calls_of_two(Communicator& comm) {
  using Shape = TwoBuffers::Shape;
  const int world = comm.world_size();
  const int rank = comm.rank();
  const auto sum = [=](int64_t i) { return sum_of(world, i); };
  const auto own_sum = [=](int64_t i) { return sum_of(world, kEach * rank + i); };
  const auto gathered = [](int64_t i) { return value(static_cast<int>(i / kEach), i % kEach); };
  const auto scattered = [=](int64_t i) { return value(0, kEach * rank + i); };
  const auto exchanged = [=](int64_t i) {
    return value(static_cast<int>(i / kEach), kEach * rank + i % kEach);
  };
  return {
      {"all_reduce", Shape::kEqual, [&](Buffer in, Buffer out, int) { comm.all_reduce(in, out); }, sum},
      {"all_gather", Shape::kGathers, [&](Buffer in, Buffer out, int) { comm.all_gather(in, out); },
       gathered},
      {"all_gather", Shape::kGathers, [&](Buffer in, Buffer out, int) { comm.iall_gather(in, out).wait(); },
       gathered},
      {"gather", Shape::kGathers, [&](Buffer in, Buffer out, int root) { comm.gather(in, out, root); },
       gathered},
      {"gather", Shape::kGathers,
       [&](Buffer in, Buffer out, int root) { comm.igather(in, out, root).wait(); }, gathered},
      {"scatter", Shape::kScatters, [&](Buffer in, Buffer out, int root) { comm.scatter(in, out, root); },
       scattered},
      {"scatter", Shape::kScatters,
       [&](Buffer in, Buffer out, int root) { comm.iscatter(in, out, root).wait(); }, scattered},
      {"reduce_scatter", Shape::kScatters, [&](Buffer in, Buffer out, int) { comm.reduce_scatter(in, out); },
       own_sum},
      {"reduce_scatter", Shape::kScatters,
       [&](Buffer in, Buffer out, int) { comm.ireduce_scatter(in, out).wait(); }, own_sum},
      {"all_to_all", Shape::kExchanges, [&](Buffer in, Buffer out, int) { comm.all_to_all(in, out); },
       exchanged},
      {"all_to_all", Shape::kExchanges, [&](Buffer in, Buffer out, int) { comm.iall_to_all(in, out).wait(); },
       exchanged},
  };
}

/// Buffers that nothing can be done with.
std::vector<std::pair<std::string, std::function<void(Buffer&)>>> bad_buffers() {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return {
      {"a null address", [](Buffer& buffer) { buffer.data = nullptr; }},
      {"a negative count", [](Buffer& buffer) { buffer.count = -1; }},
      {"the most negative count", [](Buffer& buffer) { buffer.count = -kMost - 1; }},
      {"more bytes than a number can count", [](Buffer& buffer) { buffer.count = kMost / 2; }},
      {"the largest count", [](Buffer& buffer) { buffer.count = kMost; }},
      {"an unknown type", [](Buffer& buffer) { buffer.type = static_cast<DataType>(99); }},
  };
}

class Refusals {
 public:
  explicit Refusals(Communicator& comm) : comm_(comm) {}

  /// That `call` is refused with a text that begins with the call's name and the rank.
  void expect(std::string_view name, const std::string& what, const std::function<void()>& call) {
    std::string found = "accepted";
    try {
      call();
    } catch (const UsageError& error) {
      found = error.what();
      if (found.starts_with(fmt::format("{} on rank {}: ", name, comm_.rank()))) return;
    } catch (const std::exception& error) {
      found = error.what();
    }
    problems.push_back(fmt::format("{} with {}: {}", name, what, found));
  }

  Problems problems;

 private:
  Communicator& comm_;
};

}  // namespace

Problems check_refusals(Communicator& comm) {
  const int world = comm.world_size();
  const int rank = comm.rank();
  const int64_t all = kEach * world;
  Refusals refusals(comm);
  std::vector<float> memory(static_cast<size_t>(4 * all));
  const auto at = [&](int64_t offset, int64_t count) {
    return Buffer(memory.data() + offset, count, DataType::kFloat32);
  };
  for (const auto& [what, spoil] : bad_buffers()) {
    Buffer bad = at(0, kEach);
    spoil(bad);
    for (const auto& one : calls_of_one(comm)) refusals.expect(one.name, what, [&] { one.call(bad); });
  }
  for (const TwoBuffers& one : calls_of_two(comm)) {
    const auto shape = one.shape;
    using Shape = TwoBuffers::Shape;
    const int64_t in_count = shape == Shape::kGathers ? kEach : all;
    const int64_t out_count = shape == Shape::kScatters ? kEach : all;
    const Buffer input = at(0, in_count);
    const Buffer output = at(2 * all, out_count);
    const auto refuses = [&](const std::string& what, const Buffer& in, const Buffer& out) {
      refusals.expect(one.name, what,
                      [&] { one.call(in, out, rank); });  // each rank as the root: it uses both
    };
    for (const auto& [what, spoil] : bad_buffers()) {
      Buffer in = input, out = output;
      spoil(in);
      refuses("an input of " + what, in, output);
      spoil(out);
      refuses("an output of " + what, input, out);
      if (what != "a null address" && what != "an unknown type") refuses("two of " + what, in, out);
    }
    for (const int64_t other : {out_count - 1, out_count + 1, int64_t{0}})
      refuses(fmt::format("{} elements instead of {}", other, out_count), input, at(2 * all, other));
    refuses("two types", input, Buffer(output.data, out_count, DataType::kInt32));
    constexpr int64_t kHuge = int64_t{1} << 60;  // fits in memory once
    Buffer in = input, out = output;
    (shape == Shape::kScatters ? out : in).count = kHuge;
    refuses("a count that overflows times the world", in, out);
    const int64_t own = shape == Shape::kGathers    ? -kEach * rank
                        : shape == Shape::kScatters ? kEach * rank
                                                    : 0;
    // Wherever else than in place: of two equal ones, or at its own part.
    for (int64_t offset = -(out_count - 1); offset < in_count; ++offset) {
      if (offset == own && shape != Shape::kExchanges) continue;
      refuses(fmt::format("an output {} elements behind the input", offset), at(all, in_count),
              at(all + offset, out_count));
    }
    // Side by side, and in place.
    for (const int64_t offset : {in_count, -out_count, own}) {
      if (offset == own && shape == Shape::kExchanges) continue;
      const Buffer in_place = at(all, in_count), out_place = at(all + offset, out_count);
      for (int64_t i = 0; i < in_count; ++i) memory[static_cast<size_t>(all + i)] = value(rank, i);
      one.call(in_place, out_place, 0);
      if (one.name == "gather" && rank != 0) continue;
      const auto* const found = static_cast<const float*>(out_place.data);
      expect(refusals.problems, fmt::format("{}, output {} behind the input", one.name, offset),
             std::vector<float>(found, found + out_count), one.result);
    }
  }
  // Parts of one call.
  const auto refuses_parts = [&](const std::string& what, const std::vector<Buffer>& parts) {
    refusals.expect("all_reduce", what, [&] { comm.all_reduce_coalesced(parts); });
    refusals.expect("all_reduce", what, [&] { comm.iall_reduce_coalesced(parts); });
  };
  refuses_parts("overlapping parts", {at(0, 2), at(1, 2)});
  refuses_parts("overlapping parts in another order", {at(2, 2), at(0, 3)});
  refuses_parts("one part twice", {at(0, 2), at(2, 1), at(0, 2)});
  refuses_parts("a part within another", {at(0, 4), at(4, 0), at(1, 1)});
  refuses_parts("an empty part within overlapping ones", {at(0, 3), at(1, 0), at(2, 2)});
  refuses_parts("parts of two types", {at(0, 2), Buffer(memory.data() + 2, 2, DataType::kInt32)});
  refuses_parts("parts of more elements than a number can count",
                std::vector<Buffer>(8, at(0, int64_t{1} << 60)));
  std::fill(memory.begin(), memory.end(), 1.0F);
  comm.all_reduce_coalesced({at(2, 2), at(0, 2), at(4, 0), at(4, 1)});  // side by side
  expect(refusals.problems, "parts side by side", {memory.begin(), memory.begin() + 6},
         [&](int64_t i) { return i < 5 ? static_cast<float>(world) : 1.0F; });
  // The rest of the arguments.
  Buffer good = at(0, kEach);
  for (const int root : {-1, world, std::numeric_limits<int>::max()}) {
    refusals.expect("broadcast", "a root out of range", [&] { comm.broadcast(good, root); });
    refusals.expect("reduce", "a root out of range", [&] { comm.ireduce(good, root); });
  }
  for (const int peer : {-1, world, rank}) {
    refusals.expect("send", "a peer out of range", [&] { comm.send(good, peer); });
    refusals.expect("recv", "a peer out of range", [&] { comm.irecv(good, peer); });
  }
  refusals.expect("all_reduce", "an unknown op", [&] { comm.all_reduce(good, static_cast<ReduceOp>(77)); });
  good.type = DataType::kInt32;
  refusals.expect("reduce", "the mean of integers", [&] { comm.reduce(good, 0, ReduceOp::kMean); });
  return refusals.problems;
}

}  // namespace lockstep::test
