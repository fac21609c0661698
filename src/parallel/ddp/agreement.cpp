#include "parallel/ddp/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <sstream>

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

}  // namespace lockstep::ddp
