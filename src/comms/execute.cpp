#include "comms/execute.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "comms/combine.h"
#include "comms/copy.h"
#include "lockstep/error.h"

namespace lockstep::comms {

namespace {

using plan::Kind;
using plan::Plan;
using plan::Step;
using transport::OneSided;
using transport::Stream;
using transport::Transfer;

/// Where the slots of a rank are. A run of slots lies in one piece from its first slot on.
class Layout {
 public:
  Layout(const Plan& plan, const Data& data)
      : plan_(plan), data_(data), element_bytes_(size_of(data.type)), chunks_(plan.chunks) {
    scratch_stride_ = static_cast<size_t>(chunk_elements(plan, data.count, 0, 1)) * element_bytes_;
  }

  size_t scratch_bytes() const {
    const bool has_scratch = plan_.slots > chunks_ && plan_.collective != plan::Collective::kAllToAll;
    return has_scratch ? scratch_stride_ * static_cast<size_t>(plan_.slots - chunks_) : 0;
  }

  size_t bytes_of(int chunk, int chunks) const {
    return static_cast<size_t>(elements_of(chunk, chunks)) * element_bytes_;
  }
  int64_t elements_of(int chunk, int chunks) const {
    return chunk_elements(plan_, data_.count, chunk, chunks);
  }

  /// Of a slot of a rank whose chunks begin at `slots` and whose scratch begins at `scratch`.
  std::byte* at(int slot, std::byte* slots, std::byte* scratch) const {
    if (plan_.collective == plan::Collective::kAllToAll) {
      const size_t part = static_cast<size_t>(data_.count) * element_bytes_;
      return slot < plan_.world ? slots + static_cast<size_t>(slot) * part
                                : data_.inbox + static_cast<size_t>(slot - plan_.world) * part;
    }
    if (slot >= chunks_) return scratch + static_cast<size_t>(slot - chunks_) * scratch_stride_;
    return slots + static_cast<size_t>(chunk_begin(plan_, data_.count, slot)) * element_bytes_;
  }

 private:
  const Plan& plan_;
  const Data& data_;
  const size_t element_bytes_;
  const int chunks_;
  size_t scratch_stride_;
};

/// Plans that add in rank order have everything in one combine, which then divides too.
int divisor_of(const Plan& plan, const Step& step, ReduceOp op) {
  const bool completes = plan.order == plan::Order::kRank && step.sources.count == plan.world;
  return op == ReduceOp::kMean && completes ? plan.world : 1;
}

/// What a rank shows to the others of a buffer in one piece.
size_t shared_bytes(const Plan& plan, const Data& data) {
  const int64_t pieces = plan.division == plan::Division::kSplit ? 1 : plan.world;
  return static_cast<size_t>(data.count * pieces) * size_of(data.type);
}

/// Calls act(part, offset within it, elements) for what [begin, begin + count) has of each part.
template <typename Act>
void for_each_piece(std::span<const Buffer> parts, int64_t begin, int64_t count, const Act& act) {
  const int64_t end = begin + count;
  int64_t part_begin = 0;
  for (size_t i = 0; i < parts.size() && part_begin < end; ++i) {
    const int64_t part_end = part_begin + parts[i].count;
    const int64_t from = std::max(begin, part_begin);
    const int64_t to = std::min(end, part_end);
    if (from < to) act(i, from - part_begin, to - from);
    part_begin = part_end;
  }
}

template <typename SourceOf, typename DestinationOf>
void run_combine(const ReadyPlan& ready, const Step& step, const Data& data, SourceOf source_of,
                 DestinationOf destination_of, int64_t elements) {
  // Few on the small path: no allocation.
  constexpr int kFew = 16;
  std::array<const void*, kFew> few_sources;
  std::array<void*, kFew> few_destinations;
  std::vector<const void*> many_sources;
  std::vector<void*> many_destinations;
  const auto fill = [&](const plan::Places& places, auto address_of, auto& few, auto& many) {
    const auto count = static_cast<size_t>(places.count);
    if (places.count > kFew) many.resize(count);
    auto* const addresses = places.count > kFew ? many.data() : few.data();
    for (int k = 0; k < places.count; ++k) {
      addresses[static_cast<size_t>(k)] = address_of(places.rank_of(k), places.slot_of(k));
    }
    return std::span(addresses, count);
  };
  const auto sources = fill(step.sources, source_of, few_sources, many_sources);
  const auto destinations = fill(step.destinations, destination_of, few_destinations, many_destinations);
  combine(data.type, data.op, std::span<const void* const>(sources), std::span<void* const>(destinations),
          elements, divisor_of(ready.plan, step, data.op));
}

}  // namespace

void pack(std::span<const Buffer> parts, int64_t begin, int64_t count, std::byte* to) {
  for_each_piece(parts, begin, count, [&](size_t i, int64_t offset, int64_t elements) {
    const size_t element_bytes = size_of(parts[i].type);
    const size_t bytes = static_cast<size_t>(elements) * element_bytes;
    comms::copy(to,
                static_cast<const std::byte*>(parts[i].data) + static_cast<size_t>(offset) * element_bytes,
                bytes);
    to += bytes;
  });
}

void unpack(const std::byte* from, std::span<const Buffer> parts, int64_t begin, int64_t count) {
  for_each_piece(parts, begin, count, [&](size_t i, int64_t offset, int64_t elements) {
    const size_t element_bytes = size_of(parts[i].type);
    const size_t bytes = static_cast<size_t>(elements) * element_bytes;
    comms::copy(static_cast<std::byte*>(parts[i].data) + static_cast<size_t>(offset) * element_bytes, from,
                bytes);
    from += bytes;
  });
}

bool Executor::run(const ReadyPlan& ready, const transport::Header& header, const Data& data,
                   const transport::Limit& limit, trace::Stream stream) {
  const StepTrace trace(names_, ready, header, data.count * static_cast<int64_t>(size_of(data.type)), stream);
  if (ready.one_sided) return run_one_sided(ready, header, data, limit, trace);
  if (auto* const flags = transport_.one_sided()) {
    flags->begin(header, limit);  // shown, so that ranks in another call find out
    flags->post();
    flags->settle();
  }
  run_messages(ready, header, data, limit, trace);
  return true;
}

void Executor::run_messages(const ReadyPlan& ready, const transport::Header& header, const Data& data,
                            const transport::Limit& limit, const StepTrace& trace) {
  const Layout layout(ready.plan, data);
  const bool barrier = ready.plan.collective == plan::Collective::kBarrier;
  scratch_.resize(std::max(scratch_.size(), layout.scratch_bytes()));
  const auto address = [&](int slot) { return layout.at(slot, data.slots, scratch_.data()); };
  const auto bytes_of = [&](const Step& step) {
    return barrier ? 0 : layout.bytes_of(step.chunk, step.slots.count);
  };

  struct Moving {
    size_t step;
    std::unique_ptr<Transfer> transfer;
  };
  const auto& steps = ready.steps;
  std::vector<Moving> sends, receives;
  for (size_t begin = 0, end = 0; begin < steps.size(); begin = end) {
    while (end < steps.size() && steps[end].round == steps[begin].round) ++end;
    size_t to_add = 0;
    for (size_t i = begin; i < end; ++i) {
      const Step& step = steps[i];
      if (step.kind == Kind::kRecvReduce) to_add += bytes_of(step);
      if (!step.is_local()) continue;
      const int64_t begin_ns = trace.now();
      if (step.kind == Kind::kCopy) {
        comms::copy(address(step.slots.first), address(step.from), bytes_of(step));
        trace.step(i, begin_ns, bytes_of(step));
      } else if (step.kind == Kind::kCombine) {
        const auto own = [&](int, int slot) { return address(slot); };
        run_combine(ready, step, data, own, own, layout.elements_of(step.chunk, step.width));
        trace.step(i, begin_ns, layout.bytes_of(step.chunk, step.width));
      }
    }
    const int64_t begin_ns = trace.now();
    received_.resize(std::max(received_.size(), to_add));
    std::byte* next = received_.data();
    // Receives first: a peer may send once it knows of them, and on one connection it would learn of them
    // only after all that goes out before.
    for (const bool sending : {false, true}) {
      for (size_t i = begin; i < end; ++i) {
        const Step& step = steps[i];
        const size_t bytes = bytes_of(step);
        if (step.is_local() || step.slots.count == 0 || (bytes == 0 && !barrier)) continue;
        if (step.is_send() != sending) continue;
        if (sending) {
          sends.push_back(
              {i, transport_.send(Stream::kCollective, step.peer, header, address(step.slots.first), bytes)});
        } else if (step.kind == Kind::kRecv) {
          receives.push_back({i, transport_.receive(Stream::kCollective, step.peer, header,
                                                    address(step.slots.first), bytes)});
        } else {
          receives.push_back({i, transport_.receive(Stream::kCollective, step.peer, header, next, bytes)});
          next += bytes;
        }
      }
    }
    for (const auto* all : {&receives, &sends}) {
      for (const auto& moving : *all) {
        moving.transfer->wait(limit);
        trace.step(moving.step, begin_ns, bytes_of(steps[moving.step]));
      }
    }
    receives.clear();
    sends.clear();
    // Only now: the round's sends read what was there before.
    next = received_.data();
    for (size_t i = begin; i < end; ++i) {
      const Step& step = steps[i];
      if (step.kind != Kind::kRecvReduce || barrier) continue;
      std::byte* const own = address(step.slots.first);
      // The lower rank's part is the left operand, so that both ends of an exchange get the same bits.
      const bool peer_is_left = step.peer < transport_.rank();
      const std::array<const void*, 2> sources = {peer_is_left ? next : own, peer_is_left ? own : next};
      const std::array<void*, 1> destinations = {own};
      combine(data.type, data.op, sources, destinations, layout.elements_of(step.chunk, step.slots.count));
      next += bytes_of(step);
    }
  }
}

bool Executor::run_one_sided(const ReadyPlan& ready, const transport::Header& header, const Data& data,
                             const transport::Limit& limit, const StepTrace& trace) {
  OneSided* const memory = transport_.one_sided();
  if (memory == nullptr) {
    throw UsageError(
        fmt::format("algorithm {}: needs memory that all ranks share; hint: use another algorithm, or "
                    "the engine shm",
                    ready.plan.algorithm));
  }
  const size_t bytes = shared_bytes(ready.plan, data);
  if (const size_t needed = Layout(ready.plan, data).scratch_bytes(); needed > OneSided::kInboxBytes) {
    throw UsageError(fmt::format("algorithm {}: takes at most {} bytes, not {}; hint: use push",
                                 ready.plan.algorithm, OneSided::kInboxBytes, needed));
  }
  memory->begin(header, limit);
  if (bytes == 0) {
    memory->share(
        memory->bounce_of(transport_.rank()));  // anything: no rank shall take the long way for nothing
  } else {
    memory->share(shared_place(data, bytes));
  }
  if (run_flags(ready, data, limit, trace)) return true;
  if (ready.plan.collective != plan::Collective::kAllReduce) return false;
  run_staged(ready, header, data, limit, trace);
  return true;
}

const void* Executor::shared_place(const Data& data, size_t bytes) {
  OneSided* const memory = transport_.one_sided();
  if (data.parts.empty()) return memory->contains(data.slots, bytes) ? data.slots : nullptr;
  const auto is_shared = [&](const Buffer& part) {
    return part.count == 0 || memory->contains(part.data, part.bytes());
  };
  if (!std::all_of(data.parts.begin(), data.parts.end(), is_shared)) return nullptr;
  if (table_size_ < data.parts.size()) {
    auto* const table = static_cast<int64_t*>(memory->allocate(data.parts.size() * sizeof(int64_t)));
    if (table == nullptr) return nullptr;
    table_.reset(table, [memory](int64_t* old) { memory->deallocate(old); });
    table_size_ = data.parts.size();
  }
  int64_t* entry = table_.get();
  for (const Buffer& part : data.parts) *entry++ = part.count == 0 ? 0 : memory->offset_of(part.data);
  return table_.get();
}

void Executor::run_combine_of_parts(const ReadyPlan& ready, const Step& step, const Data& data) {
  OneSided& memory = *transport_.one_sided();
  const size_t element_bytes = size_of(data.type);
  for_each_piece(data.parts, chunk_begin(ready.plan, data.count, step.chunk),
                 chunk_elements(ready.plan, data.count, step.chunk, step.width),
                 [&](size_t part, int64_t offset, int64_t elements) {
                   const size_t skipped = static_cast<size_t>(offset) * element_bytes;
                   const auto address = [&](int of, int) {
                     if (of == transport_.rank())
                       return static_cast<std::byte*>(data.parts[part].data) + skipped;
                     int64_t begin = 0;
                     std::memcpy(&begin,
                                 memory.data_of(of, data.parts.size() * sizeof(begin)) + part * sizeof(begin),
                                 sizeof(begin));
                     return memory.reach(of, begin, data.parts[part].bytes()) + skipped;
                   };
                   run_combine(ready, step, data, address, address, elements);
                 });
}

bool Executor::run_flags(const ReadyPlan& ready, const Data& data, const transport::Limit& limit,
                         const StepTrace& trace) {
  OneSided& memory = *transport_.one_sided();
  const Layout layout(ready.plan, data);
  const int rank = transport_.rank();
  const size_t shared =
      data.parts.empty() ? shared_bytes(ready.plan, data) : data.parts.size() * sizeof(int64_t);
  const auto address = [&](int of, int slot) {
    return layout.at(slot, of == rank ? data.slots : memory.data_of(of, shared), memory.inbox_of(of));
  };
  const auto destination = [&](int of, int slot) {
    return data.result != nullptr ? data.result : address(of, slot);
  };
  // Whose memory others reach: of a broadcast only the root's.
  const bool from_root = ready.plan.collective == plan::Collective::kBroadcast;
  const auto all_share = [&] {
    if (transport_.world() == 1) return true;
    if (from_root) return memory.data_of(ready.plan.root, shared) != nullptr;
    for (int k = 0; k < transport_.world(); ++k) {
      if (memory.data_of(k, shared) == nullptr) return false;
    }
    return true;
  };
  // Barriers have no data, and small data goes through the inbox.
  bool may_move = ready.plan.collective == plan::Collective::kBarrier || layout.scratch_bytes() > 0;
  int posts = 0;
  for (size_t i = 0; i < ready.steps.size(); ++i) {
    const Step& step = ready.steps[i];
    // By now the flags of all whose memory is reached have been seen: all ranks come to the same conclusion.
    const bool decides =
        step.kind == Kind::kCombine || (posts > 0 && (step.kind == Kind::kPost || from_root));
    if (!may_move && decides) {
      if (!all_share()) {
        if (posts == 0) memory.post();  // a run that a rank never shows would never be over
        memory.settle();
        return false;
      }
      may_move = true;
    }
    const int64_t begin_ns = trace.now();
    size_t bytes = 0;
    switch (step.kind) {
      case Kind::kCopy:
        bytes = layout.bytes_of(step.chunk, step.slots.count);
        comms::copy(address(rank, step.slots.first), address(rank, step.from), bytes);
        break;
      case Kind::kPost:
        ++posts;
        memory.post();
        break;
      case Kind::kWait:
        memory.wait(step.peer, step.flag, limit);
        break;
      case Kind::kCombine:
        bytes = layout.bytes_of(step.chunk, step.width);
        if (data.parts.empty()) {
          run_combine(ready, step, data, address, destination, layout.elements_of(step.chunk, step.width));
        } else {
          run_combine_of_parts(ready, step, data);
        }
        // The root of a broadcast waits for its readers, but not if it gives up.
        if (from_root && memory.has_withdrawn(ready.plan.root)) {
          throw PeerError(fmt::format("rank {} gave up while its data was read", ready.plan.root),
                          ready.plan.root);
        }
        break;
      default:
        throw Error("a plan that mixes flags and messages");
    }
    trace.step(i, begin_ns, bytes);
  }
  memory.settle();
  return true;
}

void Executor::run_staged(const ReadyPlan& ready, const transport::Header& header, const Data& data,
                          const transport::Limit& limit, const StepTrace& trace) {
  OneSided& memory = *transport_.one_sided();
  const size_t element_bytes = size_of(data.type);
  const auto piece = static_cast<int64_t>(OneSided::kBounceBytes / element_bytes);
  for (int64_t begin = 0; begin < data.count; begin += piece) {
    const int64_t count = std::min(piece, data.count - begin);
    const Buffer whole(data.slots, data.count, data.type);
    const auto parts = data.parts.empty() ? std::span(&whole, 1) : data.parts;
    memory.begin(header, limit);
    std::byte* const bounce = memory.bounce_of(transport_.rank());
    pack(parts, begin, count, bounce);
    memory.share(bounce);
    Data staged = data;
    staged.parts = {};
    staged.slots = bounce;
    staged.count = count;
    run_flags(ready, staged, limit, trace);
    unpack(bounce, parts, begin, count);
  }
}

}  // namespace lockstep::comms
