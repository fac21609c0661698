#include "comms/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "comms/combine.h"
#include "comms/copy.h"
#include "lockstep/error.h"
#include "transport/transport.h"

namespace lockstep::comms {

using plan::Collective;

namespace {

constexpr auto kMostBytes = static_cast<uint64_t>(std::numeric_limits<std::ptrdiff_t>::max());

/// What texts of refusals begin with.
struct Caller {
  std::string_view call;
  int rank;

  [[noreturn]] void refuse(const std::string& why) const {
    throw UsageError(fmt::format("{} on rank {}: {}", call, rank, why));
  }
};

bool overlap(const Buffer& one, const Buffer& other) {
  const auto a = reinterpret_cast<uintptr_t>(one.data);
  const auto b = reinterpret_cast<uintptr_t>(other.data);
  if (one.count == 0 || other.count == 0) return false;
  return a < b ? b - a < one.bytes() : a - b < other.bytes();
}

void check_parts(const Caller& caller, const std::vector<Buffer>& parts) {
  uint64_t elements = 0;
  for (const Buffer& part : parts) {
    check_buffer(caller.call, caller.rank, part, "a part");
    if (part.type != parts.front().type) {
      caller.refuse(fmt::format("parts of {} and {}; hint: one call for each type", name(parts.front().type),
                                name(part.type)));
    }
    elements += static_cast<uint64_t>(part.count);
    if (elements > kMostBytes / size_of(part.type)) {
      caller.refuse(fmt::format("{} elements in all: more than memory can hold", elements));
    }
  }
  const auto begin_of = [](const Buffer& part) { return reinterpret_cast<uintptr_t>(part.data); };
  // Mostly they lie one after the other: no need to sort them.
  uintptr_t end = 0;
  const auto is_behind = [&](const Buffer& part) {
    return part.count == 0 || begin_of(part) >= std::exchange(end, begin_of(part) + part.bytes());
  };
  if (std::all_of(parts.begin(), parts.end(), is_behind)) return;
  std::vector<Buffer> sorted = parts;
  std::erase_if(sorted, [](const Buffer& part) { return part.count == 0; });
  std::sort(sorted.begin(), sorted.end(),
            [&](const Buffer& one, const Buffer& other) { return begin_of(one) < begin_of(other); });
  const auto found = std::adjacent_find(sorted.begin(), sorted.end(), overlap);
  if (found == sorted.end()) return;
  caller.refuse(fmt::format("parts of {} and {} elements overlap; hint: give every element once",
                            found->count, found[1].count));
}

}  // namespace

void check_buffer(std::string_view call, int rank, const Buffer& buffer, std::string_view which) {
  const Caller caller{call, rank};
  if (size_of(buffer.type) == 0) {
    caller.refuse(
        fmt::format("{} has type {}; hint: use a name of DataType", which, static_cast<int>(buffer.type)));
  }
  if (buffer.count < 0) caller.refuse(fmt::format("{} has {} elements", which, buffer.count));
  if (static_cast<uint64_t>(buffer.count) > kMostBytes / size_of(buffer.type)) {
    caller.refuse(fmt::format("{} has {} {} elements: more than memory can hold", which, buffer.count,
                              name(buffer.type)));
  }
  if (buffer.data == nullptr && buffer.count > 0) {
    caller.refuse(fmt::format("{} has {} elements at a null address", which, buffer.count));
  }
}

void check(const Request& request, int rank, int world) {
  const Caller caller{name(request.collective), rank};
  const Buffer& input = request.input;
  const Buffer& output = request.output;
  if (request.root < 0 || request.root >= world) {
    caller.refuse(fmt::format("root {} in a world of {}", request.root, world));
  }
  if (is_reduction(request.collective) && name(request.op) == "unknown") {
    caller.refuse(fmt::format("op {}; hint: use a name of ReduceOp", static_cast<int>(request.op)));
  }
  if (request.parts.empty()) {
    check_buffer(caller.call, rank, input, "the input");
    check_buffer(caller.call, rank, output, "the output");
  } else {
    check_parts(caller, request.parts);
  }
  if (is_reduction(request.collective) && request.op == ReduceOp::kMean && !is_floating_point(input.type)) {
    caller.refuse(fmt::format("the mean of {}; hint: use sum, or a floating-point type", name(input.type)));
  }
  const auto expect = [&](const Buffer& buffer, int64_t count, const char* which) {
    if (buffer.count == count) return;
    caller.refuse(fmt::format("{} has {} elements, expected {}", which, buffer.count, count));
  };
  // The larger of the two buffers, and where this rank's part of it begins: the other one may lie exactly
  // there.
  const Buffer* whole = &input;
  const Buffer* part = &output;
  int64_t begin = 0;
  bool uses_both = true;
  const auto one_for_each_rank = [&](const Buffer& of_all, const Buffer& of_one, const char* which) {
    if (static_cast<uint64_t>(of_one.count) >
        kMostBytes / size_of(of_one.type) / static_cast<uint64_t>(world)) {
      caller.refuse(fmt::format("{} {} elements of each of {} ranks: more than memory can hold", of_one.count,
                                name(of_one.type), world));
    }
    whole = &of_all;
    part = &of_one;
    begin = rank * of_one.count;
    uses_both = request.collective == Collective::kAllGather || rank == request.root;
    if (uses_both) expect(of_all, of_one.count * world, which);
  };
  switch (request.collective) {
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kBarrier:
      return;
    case Collective::kAllReduce:
      expect(output, input.count, "the output");
      break;
    case Collective::kAllGather:
    case Collective::kGather:
      one_for_each_rank(output, input, "the output");
      break;
    case Collective::kScatter:
      one_for_each_rank(input, output, "the input");
      break;
    case Collective::kReduceScatter:
      begin = plan::part_begin(input.count, world, rank);
      expect(output, plan::part_begin(input.count, world, rank + 1) - begin, "the output");
      break;
    case Collective::kAllToAll:
      expect(output, input.count, "the output");
      if (input.count % world != 0) {
        caller.refuse(fmt::format("{} elements do not divide into {} parts", input.count, world));
      }
      break;
  }
  if (input.type != output.type && (uses_both || whole->count > 0)) {
    caller.refuse(fmt::format("input of {} and output of {}", name(input.type), name(output.type)));
  }
  const auto own_part =
      reinterpret_cast<uintptr_t>(whole->data) + static_cast<uintptr_t>(begin) * size_of(whole->type);
  const bool in_place =
      request.collective != Collective::kAllToAll && reinterpret_cast<uintptr_t>(part->data) == own_part;
  if (uses_both && !in_place && overlap(input, output)) {
    caller.refuse("input and output overlap; hint: use two buffers");
  }
}

namespace {

/// Up to here a message's latency costs more than its bytes, and one round of everything beats two rounds of
/// parts; both add in rank order. Between two ranks both move the same bytes. `lockstep bench --fit` measures
/// it.
size_t one_round_bytes(std::string_view engine, int world) {
  if (engine != "gloo") return size_t{32} << 10;
  return world == 2 ? std::numeric_limits<size_t>::max() : size_t{128} << 10;
}

}  // namespace

std::string_view usual_algorithm(const Request& request, std::string_view engine, int world, bool shares) {
  switch (request.collective) {
    case Collective::kAllReduce:
      if (!shares) return request.input.bytes() <= one_round_bytes(engine, world) ? "all-to-all" : "direct";
      return request.input.bytes() <= transport::OneSided::kInboxBytes ? "one-shot" : "push";
    case Collective::kBarrier:
      return shares ? "flags" : "dissemination";
    case Collective::kBroadcast:
      return shares ? "pull" : "binomial";
    case Collective::kReduce:
      return shares ? "push" : "linear";
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return shares ? "pull" : "linear";
    case Collective::kAllGather:
      return shares ? "push" : "ring";
    case Collective::kScatter:
    case Collective::kGather:
      return "linear";
  }
  return "";
}

int32_t fingerprint(const std::vector<Buffer>& parts) {
  uint64_t mixed = parts.size();
  for (const Buffer& part : parts) {
    mixed = (mixed ^ static_cast<uint64_t>(part.count)) * 0x9e3779b97f4a7c15U;  // Knuth's multiplicative hash
    mixed ^= mixed >> 32;
  }
  return static_cast<int32_t>(mixed >> 33) | 1;
}

Data lay_out(const Request& request, const ReadyPlan& ready, int rank, std::vector<std::byte>& work) {
  const int world = ready.plan.world;
  const auto bytes_of = [](const Buffer& buffer) { return static_cast<std::byte*>(buffer.data); };
  const Buffer& input = request.input;
  const Buffer& output = request.output;
  Data data = {.count = agreed(request).count, .type = agreed(request).type, .op = request.op};
  const size_t element_bytes = size_of(data.type);
  const auto own_work = [&](int64_t count) {
    work.resize(std::max(work.size(), static_cast<size_t>(count) * element_bytes));
    return work.data();
  };
  const bool is_root = rank == request.root;
  switch (request.collective) {
    case Collective::kAllReduce:
      if (!request.parts.empty()) {
        const bool by_place = ready.one_sided && ready.plan.slots == ready.plan.chunks;
        if (by_place) {
          data.parts = request.parts;
        } else {
          data.slots = own_work(input.count);
          pack(request.parts, 0, input.count, data.slots);
        }
        break;
      }
      if (output.data != input.data) comms::copy(output.data, input.data, input.bytes());
      data.slots = bytes_of(output);
      break;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kBarrier:
      data.slots = bytes_of(input);
      break;
    case Collective::kReduceScatter:
      if (ready.one_sided) {
        data.slots = bytes_of(input);
        data.result = bytes_of(output);
        break;
      }
      data.slots = own_work(input.count);
      comms::copy(data.slots, input.data, input.bytes());
      break;
    case Collective::kScatter:
      data.slots = is_root ? bytes_of(input) : own_work(output.count * world);
      break;
    case Collective::kGather:
    case Collective::kAllGather: {
      const bool has_output = request.collective == Collective::kAllGather || is_root;
      data.slots = has_output ? bytes_of(output) : own_work(input.count * world);
      std::byte* const own = data.slots + static_cast<size_t>(rank) * input.bytes();
      if (own != input.data) comms::copy(own, input.data, input.bytes());
      break;
    }
    case Collective::kAllToAll:
      data.count = input.count / world;
      data.slots = bytes_of(input);
      data.inbox = bytes_of(output);
      break;
  }
  return data;
}

void take_out(const Request& request, const plan::Plan& plan, int rank, const Data& data) {
  std::byte* result = data.slots;
  int64_t count = data.count;
  const bool has_part =
      request.collective == Collective::kScatter || request.collective == Collective::kReduceScatter;
  if (has_part && data.result == nullptr) {
    const size_t element_bytes = size_of(data.type);
    result += static_cast<size_t>(chunk_begin(plan, data.count, rank)) * element_bytes;
    count = chunk_elements(plan, data.count, rank, 1);
    comms::copy(request.output.data, result, static_cast<size_t>(count) * element_bytes);
    result = static_cast<std::byte*>(request.output.data);
  }
  // Plans in rank order have divided where they added.
  const bool divides = is_reduction(request.collective) && request.op == ReduceOp::kMean &&
                       plan.order != plan::Order::kRank &&
                       (request.collective != Collective::kReduce || rank == request.root);
  if (divides) {
    const std::array<const void*, 1> sources = {result};
    const std::array<void*, 1> destinations = {result};
    combine(data.type, ReduceOp::kMean, sources, destinations, count, plan.world);
  }
  const bool was_packed = !request.parts.empty() && data.parts.empty();
  if (was_packed) unpack(result, request.parts, 0, count);
}

}  // namespace lockstep::comms
