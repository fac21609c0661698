#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comms/ready_plan.h"
#include "comms/step_trace.h"
#include "lockstep/comms/buffer.h"
#include "transport/transport.h"

namespace lockstep::comms {

/// What a collective works on: `count` elements as the plan divides them.
struct Data {
  std::byte* slots = nullptr;  ///< Of the chunks, one behind the other; of all-to-all: what goes out.
  std::byte* inbox = nullptr;  ///< All-to-all only: what comes in.
  int64_t count = 0;           ///< Of the plan: in all if it splits, of each chunk if not.
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  /// One-sided reduce-scatter only: where the rank's own chunk goes, so that the slots stay as they are.
  std::byte* result = nullptr;
  /// All-reduce by push only, instead of `slots`: the pieces of memory that hold the elements, in this order.
  std::span<const Buffer> parts = {};
};

/// Elements [begin, begin + count) of `parts`, one behind the other, and back.
void pack(std::span<const Buffer> parts, int64_t begin, int64_t count, std::byte* to);
void unpack(const std::byte* from, std::span<const Buffer> parts, int64_t begin, int64_t count);

/// Runs plans: one small switch. Keeps its scratch memory from call to call.
class Executor {
 public:
  Executor(transport::Transport& transport, std::string trace_suffix)
      : transport_(transport), names_(std::move(trace_suffix)) {}

  /// Throws what Transfer::wait throws. Spans of a trace are put on `stream`. False, on all ranks, if some
  /// rank's data lies outside of shared memory and only a plan of messages can do it.
  bool run(const ReadyPlan& ready, const transport::Header& header, const Data& data,
           const transport::Limit& limit, trace::Stream stream);

 private:
  void run_messages(const ReadyPlan& ready, const transport::Header& header, const Data& data,
                    const transport::Limit& limit, const StepTrace& trace);
  bool run_one_sided(const ReadyPlan& ready, const transport::Header& header, const Data& data,
                     const transport::Limit& limit, const StepTrace& trace);
  /// The flags and combines of a run that has begun. False, with nothing done but the flags, if some rank's
  /// data is not shared.
  bool run_flags(const ReadyPlan& ready, const Data& data, const transport::Limit& limit,
                 const StepTrace& trace);
  /// One combine of data in parts: peers have told where theirs are.
  void run_combine_of_parts(const ReadyPlan& ready, const plan::Step& step, const Data& data);
  /// Where this rank's data is, for the others to see; null if it is not shared.
  const void* shared_place(const Data& data, size_t bytes);
  /// For data outside of shared memory: in pieces through the bounce buffers, which stay in the cache.
  void run_staged(const ReadyPlan& ready, const transport::Header& header, const Data& data,
                  const transport::Limit& limit, const StepTrace& trace);

  transport::Transport& transport_;
  StepNames names_;
  std::vector<std::byte> scratch_;   ///< Of the plan.
  std::vector<std::byte> received_;  ///< What is to be added, until the round is over.
  /// Offsets of the parts of the run, in shared memory. Free for the next run when push is over: all have
  /// read.
  std::shared_ptr<int64_t[]> table_;
  size_t table_size_ = 0;
};

}  // namespace lockstep::comms
