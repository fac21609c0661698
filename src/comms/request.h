#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "comms/execute.h"
#include "lockstep/comms/buffer.h"
#include "lockstep/plan/plan.h"

namespace lockstep::comms {

/// A collective as the caller asked for it.
struct Request {
  plan::Collective collective;
  Buffer input;
  Buffer output;  ///< The same as `input` for what works in place.
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  std::chrono::milliseconds timeout{0};
  std::string algorithm;
  /// All-reduce only, instead of the data of input and output, which then give count and type: what holds the
  /// elements, one behind the other.
  std::vector<Buffer> parts = {};
};

/// The buffer that every rank gives, whose count and type all ranks agree on. The other one may be left out.
inline const Buffer& agreed(const Request& request) {
  return request.collective == plan::Collective::kScatter ? request.output : request.input;
}

/// Throws UsageError, by name and value, for elements that cannot be there: a null address, a count that is
/// negative or larger than any memory, an unknown type.
void check_buffer(std::string_view call, int rank, const Buffer& buffer, std::string_view which);

/// The same for all buffers of a request, and for what else no rank could do: a root out of range, counts or
/// types that do not belong together, buffers that overlap.
void check(const Request& request, int rank, int world);

/// The engine's algorithm for this size, where the caller named none; `shares`: by memory that all ranks
/// reach.
std::string_view usual_algorithm(const Request& request, std::string_view engine, int world, bool shares);

/// What ranks compare of their parts: a number made of the counts, never 0.
int32_t fingerprint(const std::vector<Buffer>& parts);

/// The request's buffers as its plan sees them. What is not laid out like that goes through `work`.
Data lay_out(const Request& request, const ReadyPlan& ready, int rank, std::vector<std::byte>& work);
/// The way back, after the plan has run.
void take_out(const Request& request, const plan::Plan& plan, int rank, const Data& data);

}  // namespace lockstep::comms
