#include "comms/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "comms/combine.h"
#include "comms/copy.h"
#include "lockstep/error.h"
#include "transport/transport.h"

namespace lockstep::comms {

using plan::Collective;

void check(const Request& request, int rank, int world) {
  const std::string_view what = name(request.collective);
  if (request.root < 0 || request.root >= world) {
    throw UsageError(fmt::format("{} on rank {}: root {} in a world of {}", what, rank, request.root, world));
  }
  if (is_reduction(request.collective) && request.op == ReduceOp::kMean &&
      !is_floating_point(request.input.type)) {
    throw UsageError(fmt::format("{} on rank {}: the mean of {}; hint: use sum, or a floating-point type",
                                 what, rank, name(request.input.type)));
  }
  const auto expect = [&](const Buffer& buffer, int64_t count, const char* which) {
    if (buffer.count == count && (buffer.data != nullptr || count == 0)) return;
    throw UsageError(fmt::format("{} on rank {}: {} has {} elements, {} are needed", what, rank, which,
                                 buffer.data == nullptr ? 0 : buffer.count, count));
  };
  for (const Buffer& part : request.parts) {
    if (part.data == nullptr && part.count > 0) {
      throw UsageError(
          fmt::format("{} on rank {}: a part of {} elements without data", what, rank, part.count));
    }
    if (part.type == request.input.type) continue;
    throw UsageError(fmt::format("{} on rank {}: parts of {} and {}; hint: one call for each type", what,
                                 rank, name(request.input.type), name(part.type)));
  }
  const Buffer& input = request.input;
  const Buffer& output = request.output;
  const bool is_root = rank == request.root;
  const auto refuse_overlap = [&] {
    const auto* const in = static_cast<const std::byte*>(input.data);
    const auto* const out = static_cast<const std::byte*>(output.data);
    if (in + input.bytes() <= out || out + output.bytes() <= in) return;
    throw UsageError(
        fmt::format("{} on rank {}: input and output overlap; hint: use two buffers", what, rank));
  };
  switch (request.collective) {
    case Collective::kAllGather:
      expect(output, input.count * world, "the output");
      break;
    case Collective::kGather:
      if (is_root) expect(output, input.count * world, "the output");
      break;
    case Collective::kScatter:
      if (is_root) expect(input, output.count * world, "the input");
      break;
    case Collective::kReduceScatter: {
      const int64_t begin = plan::part_begin(input.count, world, rank);
      expect(output, plan::part_begin(input.count, world, rank + 1) - begin, "the output");
      const auto* const own_part =
          static_cast<const std::byte*>(input.data) + static_cast<size_t>(begin) * size_of(input.type);
      if (output.data != own_part) refuse_overlap();
      break;
    }
    case Collective::kAllToAll:
      expect(output, input.count, "the output");
      refuse_overlap();
      if (input.count % world != 0) {
        throw UsageError(fmt::format("{} on rank {}: {} elements do not divide into {} parts", what, rank,
                                     input.count, world));
      }
      break;
    default:
      break;
  }
  const bool uses_both =
      request.collective != Collective::kBarrier && output.data != nullptr && input.data != nullptr;
  if (uses_both && input.type != output.type) {
    throw UsageError(fmt::format("{} on rank {}: input of {} and output of {}", what, rank, name(input.type),
                                 name(output.type)));
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
  Data data = {.count = input.count, .type = input.type, .op = request.op};
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
      data.count = output.count;
      data.type = output.type;
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
