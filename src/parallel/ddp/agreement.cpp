#include "parallel/ddp/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "lockstep/error.h"

namespace lockstep::ddp {

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::vector<std::string> gather_texts(Communicator& comm, const std::string& text) {
  const auto world = static_cast<size_t>(comm.world_size());
  std::vector<int64_t> own = {static_cast<int64_t>(text.size())};
  std::vector<int64_t> lengths(world);
  comm.all_gather(own, lengths);
  constexpr int64_t kMost = int64_t{1} << 30;
  for (size_t rank = 0; rank < world; ++rank) {
    if (lengths[rank] >= 0 && lengths[rank] <= kMost) continue;
    throw Error(
        fmt::format("ddp: rank {} announced a text of {} bytes, expected 0 to {}; hint: do all ranks "
                    "run the same build of the program?",
                    rank, lengths[rank], kMost));
  }
  const auto longest = static_cast<size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::vector<uint8_t> padded(longest);
  std::copy(text.begin(), text.end(), padded.begin());
  std::vector<uint8_t> all(longest * world);
  comm.all_gather(padded, all);
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < world; ++rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * longest);
    texts.emplace_back(begin, begin + lengths[rank]);
  }
  return texts;
}

std::string first_difference(Communicator& comm, const std::vector<std::string>& descriptions) {
  const auto texts = gather_texts(comm, fmt::format("{}", fmt::join(descriptions, "\n")));
  const auto of_rank_0 = lines_of(texts.front());
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts.front()) continue;
    const auto others = lines_of(texts[rank]);
    for (size_t i = 0; i < std::max(of_rank_0.size(), others.size()); ++i) {
      const std::string ours = i < of_rank_0.size() ? of_rank_0[i] : "nothing more";
      const std::string theirs = i < others.size() ? others[i] : "nothing more";
      if (ours != theirs) return fmt::format("rank 0 has {}, rank {} has {}", ours, rank, theirs);
    }
  }
  return "";
}

std::string summary_of(const std::vector<std::string>& texts) {
  std::vector<std::string> told;
  for (size_t first = 0; first < texts.size(); ++first) {
    const auto said_by = [&](size_t rank) { return texts[rank] == texts[first]; };
    size_t before = 0;
    while (!said_by(before)) ++before;
    if (texts[first].empty() || before < first) continue;
    std::vector<size_t> ranks;
    for (size_t rank = first; rank < texts.size(); ++rank) {
      if (said_by(rank)) ranks.push_back(rank);
    }
    told.push_back(
        fmt::format("{} {}: {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "), texts[first]));
  }
  return fmt::format("{}", fmt::join(told, "; "));
}

}  // namespace lockstep::ddp
