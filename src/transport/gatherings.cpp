#include "transport/gatherings.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "launch/printable.h"
#include "transport/bytes.h"
#include "transport/greeting.h"

namespace lockstep::transport {

std::optional<Failure> Gatherings::give(int rank, const Gather& gather) {
  if (gather.members.empty() || gather.members.back() >= world_) {
    throw FrameError(fmt::format("a gather of {} in a job of {}", name_ranks(gather.members), world_));
  }
  if (!std::binary_search(gather.members.begin(), gather.members.end(), rank)) {
    throw FrameError(fmt::format("a gather of {}, to which it does not belong", name_ranks(gather.members)));
  }
  const auto [entry, is_new] = pending_.try_emplace(gather.tag);
  Pending& pending = entry->second;
  if (is_new) {
    pending.first = rank;
    pending.members = gather.members;
  }
  const std::string tag = launch::printable(gather.tag);
  if (pending.members != gather.members) {
    return Failure{
        rank, fmt::format("all_gather '{}' on rank {}: it gathers with {}, rank {} gathers with {}; "
                          "hint: all members must name the same members",
                          tag, rank, name_ranks(gather.members), pending.first, name_ranks(pending.members))};
  }
  if (!pending.given.insert(rank).second) {
    return Failure{rank,
                   fmt::format("all_gather '{}' on rank {}: it has given to it before; hint: a tag is used "
                               "once",
                               tag, rank)};
  }
  if (pending.given.size() == pending.members.size()) pending_.erase(entry);
  return std::nullopt;
}

void check_gather(int rank, int world, const std::string& tag, const std::vector<int>& members,
                  const std::string& blob) {
  const auto refuse = [&](const std::string& what) {
    throw UsageError(fmt::format("all_gather '{}' on rank {}: {}", launch::printable(tag), rank, what));
  };
  if (tag.empty() || tag.size() > kMaxTagBytes) {
    refuse(fmt::format("a tag of {} bytes, expected 1 to {}", tag.size(), kMaxTagBytes));
  }
  if (blob.size() > kMaxBlobBytes) {
    refuse(fmt::format("a blob of {} bytes, at most {} allowed", blob.size(), kMaxBlobBytes));
  }
  if (std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) != members.end()) {
    refuse(fmt::format("members are {}, expected in ascending order", name_ranks(members)));
  }
  if (!std::binary_search(members.begin(), members.end(), rank)) {
    refuse(fmt::format("members are {}, expected this rank among them", name_ranks(members)));
  }
  if (members.front() < 0 || members.back() >= world) {
    refuse(fmt::format("members are {}, expected ranks from 0 to {}", name_ranks(members), world - 1));
  }
}

std::uint64_t group_of(const std::vector<int>& members) {
  std::string bytes;
  for (const int member : members) put_number(bytes, static_cast<std::uint32_t>(member));
  const Digest hash = digest(bytes);
  return get_number<std::uint64_t>(std::string(hash.begin(), hash.end()));
}

std::string name_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 16;
  if (ranks.empty()) return "no ranks";
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  std::string text = fmt::format("ranks {}", ranks[0]);
  const std::size_t shown = std::min(ranks.size(), kMost);
  for (std::size_t i = 1; i < shown; ++i) {
    text += fmt::format("{}{}", i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  }
  if (shown < ranks.size()) text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

}  // namespace lockstep::transport
