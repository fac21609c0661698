#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::lab {

/// The plan that a lesson's words name (those after `lockstep plan`), as the page of a run shows it; null for
/// no words. It is made for the ranks of the trace: where the words name another world, it is this one, and
/// as many elements as the trace's messages touch, if that is known. Throws UsageError for words that name no
/// plan.
///
/// The library's JSON of the plan, and beside it:
///   family  `collective` or `pipeline`
///   words   of the plan that was made
///   sent    by rank: messages, and for collectives bytes, if `count` is known
/// Collectives: `count` (null if the run's is not known), `time_us` (on the links that the trace's messages
/// show, null if they show none), and in a step `row`, `begin` and `elements`: its part of the buffer, begin
/// -1 if that is scratch.
/// Pipelines: `makespan`, `bubble_of_total`, and in an action `start` and `end`, in cycles.
nlohmann::json plan_beside(const std::string& words, const nlohmann::json& trace);

}  // namespace lockstep::lab
