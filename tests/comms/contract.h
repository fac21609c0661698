#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comms/communicator.h"

namespace lockstep::test {

/// Runs every collective by every algorithm on `comm`, with all counts that matter, and checks every element.
/// All ranks must call it. Returns what is wrong, first thing first; empty if all is right.
std::vector<std::string> check_collectives(Communicator& comm);

/// Every type with every operation, by every algorithm that reduces and by the engine's own choice.
std::vector<std::string> check_types(Communicator& comm);
/// Every all-reduce gives the bits of its plan, run by the oracle of the verifier, on all ranks.
std::vector<std::string> check_bits(Communicator& comm);
/// Signed zeros, infinities and NaNs of every kind: every algorithm gives all ranks the same bits.
std::vector<std::string> check_special_values(Communicator& comm);

/// Several buffers in one all-reduce: of all lengths, in shared memory or not, by every algorithm.
std::vector<std::string> check_coalesced(Communicator& comm);

/// Point to point: blocking and not, both ways at once, small and large, in order.
std::vector<std::string> check_messages(Communicator& comm);

/// Messages that are posted and waited for in any legal order, and among collectives, arrive.
std::vector<std::string> check_any_order(Communicator& comm);

/// Not blocking: queued work in order, between blocking calls.
std::vector<std::string> check_async(Communicator& comm);

/// Groups of a group, interleaved with it.
std::vector<std::string> check_split(Communicator& comm);

/// Bad arguments of every call are refused by name and value; buffers side by side and in place are not.
std::vector<std::string> check_refusals(Communicator& comm);

/// All of these, one after the other; what is wrong, a line each.
std::string check_all(Communicator& comm);

/// Children forked in the middle of things get clear errors, end well and harm nobody. Several ranks.
std::vector<std::string> check_forked_child(Communicator& comm);

/// Something that ends a job, and what every rank must find then.
struct Fault {
  const char* name;
  int world;
  std::chrono::milliseconds timeout;              ///< Of the communicator.
  std::function<std::string(Communicator&)> act;  ///< What is wrong, "" if all is right.
  int trials = 1;                                 ///< Of threads, whose timing differs.
};
std::vector<Fault> faults();

}  // namespace lockstep::test
