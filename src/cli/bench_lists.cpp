#include "cli/bench_lists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "cli/nearest.h"
#include "cli/size.h"
#include "launch/memory.h"
#include "lockstep/error.h"
#include "lockstep/plan/collectives.h"
#include "transport/engines.h"
#include "transport/transport.h"

namespace lockstep::cli {

namespace {

/// The words of a list, each once; at least one.
std::vector<std::string> words_of(const std::string& flag, const std::string& list, const char* example) {
  std::vector<std::string> words;
  std::istringstream stream(list);
  for (std::string word; std::getline(stream, word, ',');) {
    const bool known = std::find(words.begin(), words.end(), word) != words.end();
    if (!word.empty() && !known) words.push_back(word);
  }
  if (words.empty())
    throw UsageError(fmt::format("{} '{}': names nothing; hint: like {}", flag, list, example));
  return words;
}

/// The plan's spelling of an algorithm's name.
std::string spelled(const std::string& collective, const std::string& wanted) {
  std::vector<std::string> known = {"native"};
  for (const auto& algorithm : plan::algorithms_of(plan::find_collective(collective)))
    known.emplace_back(algorithm.name);
  for (const auto& name : known) {
    if (plan::plain_name(name) == plan::plain_name(wanted)) return name;
  }
  const std::string near = nearest(wanted, known);
  const std::string hint =
      near.empty() ? fmt::format("one of {}", fmt::join(known, ", ")) : fmt::format("did you mean {}?", near);
  throw UsageError(fmt::format("--algorithms '{}': unknown for {}; hint: {}", wanted, collective, hint));
}

}  // namespace

std::vector<std::string> parse_engines(const std::string& list) {
  auto engines = words_of("--engines", list, "shm,gloo,mpi");
  for (const auto& engine : engines) {
    transport::require_engine(engine, "--engines");
    if (engine == "threads")
      throw UsageError("--engines threads: it has no processes to measure; hint: use shm, gloo or mpi");
  }
  return engines;
}

std::vector<int64_t> parse_sizes(const std::string& list, int64_t copies) {
  const uint64_t available = launch::memory().available_bytes;
  std::vector<int64_t> sizes;
  for (const auto& word : words_of("--sizes", list, "4,64KiB,4MiB")) {
    const int64_t bytes = parse_bytes("--sizes", word);
    if (bytes < static_cast<int64_t>(sizeof(float)))
      throw UsageError(fmt::format("--sizes {}: less than one float32; hint: from 4 bytes on", word));
    if (static_cast<uint64_t>(bytes) > available / static_cast<uint64_t>(copies)) {
      throw UsageError(
          fmt::format("--sizes {}: the ranks hold {} buffers of it, and {} of memory are free; "
                      "hint: smaller sizes, fewer ranks or fewer engines",
                      word, copies, bytes_text(static_cast<int64_t>(available))));
    }
    if (std::find(sizes.begin(), sizes.end(), bytes) == sizes.end()) sizes.push_back(bytes);
  }
  return sizes;
}

std::string why_not(const std::string& collective, const std::string& engine, const std::string& algorithm,
                    int64_t bytes) {
  constexpr auto kInbox = static_cast<int64_t>(transport::OneSided::kInboxBytes);
  if (engine == "shm") {
    if (algorithm == "native") return "shm has none of its own; hint: native is for gloo and mpi";
    if (algorithm == "one-shot" && bytes > kInbox)
      return fmt::format("takes at most {} bytes, not {}; hint: use push", kInbox, bytes);
    return "";
  }
  const bool has_plan = algorithm != "native" && collective != "pingpong";
  if (!has_plan || !plan::find_algorithm(plan::find_collective(collective), algorithm).one_sided) return "";
  return fmt::format(
      "needs what {} has not, memory that all ranks share; hint: use shm, or another algorithm", engine);
}

std::vector<std::string> parse_algorithms(const std::string& collective, const std::string& list,
                                          const std::vector<std::string>& engines,
                                          const std::vector<int64_t>& sizes) {
  if (collective == "pingpong")
    throw UsageError(fmt::format("--algorithms '{}': pingpong has none, it is two messages", list));
  std::vector<std::string> algorithms;
  for (const auto& word : words_of("--algorithms", list, "ring,tree")) {
    const std::string algorithm = spelled(collective, word);
    if (algorithm == "native" && collective != "allreduce") {
      throw UsageError(
          fmt::format("--algorithms native: {} has none; hint: native is for allreduce", collective));
    }
    for (const auto& engine : engines) {
      const std::string reason =
          why_not(collective, engine, algorithm, *std::max_element(sizes.begin(), sizes.end()));
      if (!reason.empty()) throw UsageError(fmt::format("--algorithms {}: {}", word, reason));
    }
    algorithms.push_back(algorithm);
  }
  return algorithms;
}

}  // namespace lockstep::cli
