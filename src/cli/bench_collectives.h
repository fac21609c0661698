#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cli {

/// What `bench COLLECTIVE` measures; the ranks get it as words.
struct CollectiveBench {
  std::string collective;
  std::vector<std::string> engines = {"shm"};
  std::vector<std::string> algorithms = {};  ///< Empty: each engine's own choice.
  std::vector<int64_t> sizes = {};           ///< Bytes.
  int64_t world = 2;
  int64_t rounds = 7;
  bool staged = false;  ///< Buffers outside of shared memory.
};

/// The words of a list with commas.
std::vector<std::string> words_of(const std::string& list);

}  // namespace lockstep::cli
