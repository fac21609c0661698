#pragma once

#include <string>
#include <string_view>

#include "lockstep/plan/plan.h"

namespace lockstep::plan {

/// The JSON form of a plan, for pages and other programs; plan_from_json() reads it back. As large as the
/// text form, and refused above the same number of steps.
///
///   {"collective": "all_reduce", "algorithm": "ring", "world": 2, "root": 0, "chunks": 2, "slots": 2,
///    "division": "split", "order": "position", "sends": "rendezvous", "ranks_per_node": 0,
///    "ranks": [[{"round": 0, "kind": "send", "peer": 1, "slot": 1, "slots": 1, "chunk": 1,
///                "text": "send 1 slot 1"}, ...], ...]}
///
/// A step has `round`, `kind` and `text` (as in the text form), and by kind:
///   send, recv, recv_reduce  peer, slot (the first), slots (how many), chunk (of the first slot)
///   copy                     slot, slots, chunk, from (the first slot read)
///   wait                     peer, flag
///   combine                  chunk, width, sources, destinations: places
/// Places are {"rank", "rank_step", "slot", "slot_step", "count"}, and "except", "except_slot" for a place
/// apart.
std::string to_json(const Plan& plan);

/// Reads the JSON form. Every field must be there, but for ranks_per_node, except, except_slot and text; text
/// must say what the other fields say; fields of other names are ignored. The bounds of the text form hold.
/// Throws UsageError with the place and the reason: `plan json /ranks/0/3/peer: ...`, or with the line for
/// text that is not JSON.
Plan plan_from_json(std::string_view text);

}  // namespace lockstep::plan
