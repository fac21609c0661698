#include "comms/call.h"

#include <fmt/format.h>

#include "lockstep/plan/collectives.h"

namespace lockstep::comms {

namespace {

bool has_root(plan::Collective collective) {
  return collective == plan::Collective::kBroadcast || collective == plan::Collective::kReduce ||
         collective == plan::Collective::kScatter || collective == plan::Collective::kGather;
}

/// An all-reduce has no root, but may have parts.
std::string told_root(const transport::Header& header, plan::Collective collective) {
  if (has_root(collective)) return fmt::format(", root {}", header.root);
  return header.root == 0 ? "" : fmt::format(", in parts {:08x}", static_cast<uint32_t>(header.root));
}

std::string_view algorithm_of(const transport::Header& header) {
  const auto& all = plan::algorithms();
  return header.algorithm < all.size() ? all[header.algorithm].name : "?";
}

}  // namespace

std::string title(const transport::Header& header) {
  if (header.operation == kPointToPoint) return fmt::format("message with tag {}", header.root);
  if (header.operation == kSplit) return fmt::format("split #{}", header.call);
  return fmt::format("{} #{}", plan::name(static_cast<plan::Collective>(header.operation)), header.call);
}

std::string describe(const transport::Header& header) {
  const auto type = static_cast<DataType>(header.type);
  if (header.operation == kSplit) return title(header);
  if (header.operation == kPointToPoint) {
    return fmt::format("{} ({} {})", title(header), header.count, name(type));
  }
  const auto collective = static_cast<plan::Collective>(header.operation);
  if (collective == plan::Collective::kBarrier) {
    return fmt::format("{} (algorithm {})", title(header), algorithm_of(header));
  }
  return fmt::format(
      "{} ({}{} {}{}, algorithm {})", title(header),
      is_reduction(collective) ? fmt::format("{} of ", name(static_cast<ReduceOp>(header.reduce))) : "",
      header.count, name(type), told_root(header, collective), algorithm_of(header));
}

}  // namespace lockstep::comms
