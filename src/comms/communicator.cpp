#include "lockstep/comms/communicator.h"

#include "comms/group.h"

namespace lockstep {

namespace {

using comms::Request;
using plan::Collective;

Request request(Collective collective, const Buffer& input, const Buffer& output, ReduceOp op, int root,
                const CallOptions& options) {
  return {.collective = collective,
          .input = input,
          .output = output,
          .op = op,
          .root = root,
          .timeout = options.timeout,
          .algorithm = std::string(options.algorithm)};
}

Request all_reduce_of(const Buffer& input, const Buffer& output, ReduceOp op, const CallOptions& options) {
  return request(Collective::kAllReduce, input, output, op, 0, options);
}
Request coalesced_of(std::vector<Buffer> parts, ReduceOp op, const CallOptions& options) {
  Buffer whole;
  if (!parts.empty()) whole.type = parts.front().type;
  uint64_t count = 0;  // may wrap around: check() refuses such parts
  for (const Buffer& part : parts) count += static_cast<uint64_t>(part.count);
  whole.count = static_cast<int64_t>(count);
  Request wanted = all_reduce_of(whole, whole, op, options);
  wanted.parts = std::move(parts);
  return wanted;
}
Request broadcast_of(const Buffer& data, int root, const CallOptions& options) {
  return request(Collective::kBroadcast, data, data, ReduceOp::kSum, root, options);
}
Request reduce_of(const Buffer& data, int root, ReduceOp op, const CallOptions& options) {
  return request(Collective::kReduce, data, data, op, root, options);
}
Request scatter_of(const Buffer& input, const Buffer& output, int root, const CallOptions& options) {
  return request(Collective::kScatter, input, output, ReduceOp::kSum, root, options);
}
Request gather_of(const Buffer& input, const Buffer& output, int root, const CallOptions& options) {
  return request(Collective::kGather, input, output, ReduceOp::kSum, root, options);
}
Request all_gather_of(const Buffer& input, const Buffer& output, const CallOptions& options) {
  return request(Collective::kAllGather, input, output, ReduceOp::kSum, 0, options);
}
Request reduce_scatter_of(const Buffer& input, const Buffer& output, ReduceOp op,
                          const CallOptions& options) {
  return request(Collective::kReduceScatter, input, output, op, 0, options);
}
Request all_to_all_of(const Buffer& input, const Buffer& output, const CallOptions& options) {
  return request(Collective::kAllToAll, input, output, ReduceOp::kSum, 0, options);
}
Request barrier_of(const CallOptions& options) {
  return request(Collective::kBarrier, {}, {}, ReduceOp::kSum, 0, options);
}

}  // namespace

int Communicator::rank() const {
  return group_->rank();
}
int Communicator::world_size() const {
  return group_->world();
}
std::string_view Communicator::engine() const {
  return group_->engine();
}

void Communicator::all_reduce(Buffer data, ReduceOp op, const CallOptions& options) {
  group_->run(all_reduce_of(data, data, op, options));
}
void Communicator::all_reduce(Buffer input, Buffer output, ReduceOp op, const CallOptions& options) {
  group_->run(all_reduce_of(input, output, op, options));
}
void Communicator::all_reduce_coalesced(std::vector<Buffer> parts, ReduceOp op, const CallOptions& options) {
  group_->run(coalesced_of(std::move(parts), op, options));
}
void Communicator::broadcast(Buffer data, int root, const CallOptions& options) {
  group_->run(broadcast_of(data, root, options));
}
void Communicator::reduce(Buffer data, int root, ReduceOp op, const CallOptions& options) {
  group_->run(reduce_of(data, root, op, options));
}
void Communicator::scatter(Buffer input, Buffer output, int root, const CallOptions& options) {
  group_->run(scatter_of(input, output, root, options));
}
void Communicator::gather(Buffer input, Buffer output, int root, const CallOptions& options) {
  group_->run(gather_of(input, output, root, options));
}
void Communicator::all_gather(Buffer input, Buffer output, const CallOptions& options) {
  group_->run(all_gather_of(input, output, options));
}
void Communicator::reduce_scatter(Buffer input, Buffer output, ReduceOp op, const CallOptions& options) {
  group_->run(reduce_scatter_of(input, output, op, options));
}
void Communicator::all_to_all(Buffer input, Buffer output, const CallOptions& options) {
  group_->run(all_to_all_of(input, output, options));
}
void Communicator::barrier(const CallOptions& options) {
  group_->run(barrier_of(options));
}

Work Communicator::iall_reduce(Buffer data, ReduceOp op, const CallOptions& options) {
  return group_->start(all_reduce_of(data, data, op, options));
}
Work Communicator::iall_reduce_coalesced(std::vector<Buffer> parts, ReduceOp op, const CallOptions& options) {
  return group_->start(coalesced_of(std::move(parts), op, options));
}
Work Communicator::ibroadcast(Buffer data, int root, const CallOptions& options) {
  return group_->start(broadcast_of(data, root, options));
}
Work Communicator::ireduce(Buffer data, int root, ReduceOp op, const CallOptions& options) {
  return group_->start(reduce_of(data, root, op, options));
}
Work Communicator::iscatter(Buffer input, Buffer output, int root, const CallOptions& options) {
  return group_->start(scatter_of(input, output, root, options));
}
Work Communicator::igather(Buffer input, Buffer output, int root, const CallOptions& options) {
  return group_->start(gather_of(input, output, root, options));
}
Work Communicator::iall_gather(Buffer input, Buffer output, const CallOptions& options) {
  return group_->start(all_gather_of(input, output, options));
}
Work Communicator::ireduce_scatter(Buffer input, Buffer output, ReduceOp op, const CallOptions& options) {
  return group_->start(reduce_scatter_of(input, output, op, options));
}
Work Communicator::iall_to_all(Buffer input, Buffer output, const CallOptions& options) {
  return group_->start(all_to_all_of(input, output, options));
}
Work Communicator::ibarrier(const CallOptions& options) {
  return group_->start(barrier_of(options));
}

void Communicator::send(Buffer data, int to, int tag, const CallOptions& options) {
  group_->start_send(data, to, tag, options.timeout, /*is_waited_for=*/true).wait();
}
void Communicator::recv(Buffer data, int from, int tag, const CallOptions& options) {
  group_->start_receive(data, from, tag, options.timeout, /*is_waited_for=*/true).wait();
}
Work Communicator::isend(Buffer data, int to, int tag, const CallOptions& options) {
  return group_->start_send(data, to, tag, options.timeout, /*is_waited_for=*/false);
}
Work Communicator::irecv(Buffer data, int from, int tag, const CallOptions& options) {
  return group_->start_receive(data, from, tag, options.timeout, /*is_waited_for=*/false);
}

std::optional<Communicator> Communicator::split(int colour, int key) {
  auto group = group_->split(colour, key);
  if (group == nullptr) return std::nullopt;
  return Communicator(std::move(group));
}

std::shared_ptr<void> Communicator::allocate(std::size_t bytes) {
  return group_->allocate(bytes);
}

void Communicator::abort(const std::string& reason) {
  group_->abort(reason);
}

}  // namespace lockstep
