#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/plan.h"
#include "lockstep/plan/simulate.h"

namespace lockstep::plan {

/// How much of what a plan's time is made of, on a network of one level:
/// rounds x latency + bytes x seconds per byte + reduced bytes x seconds per byte added.
struct CostTerms {
  double rounds = 0;  ///< Latencies in a row.
  double bytes = 0;
  double reduced_bytes = 0;

  /// Bytes of a message, on average: what decides protocol and level of cache.
  double message_bytes() const { return rounds > 0 ? bytes / rounds : 0; }

  double time_s(const Network& network) const {
    return rounds * network.between.latency_s + bytes * network.between.s_per_byte +
           reduced_bytes * network.reduce_s_per_byte;
  }
};

/// Counted by simulating the plan with one cost at a time. The three add up to simulate()'s time for every
/// plan whose costs all lie on one chain of messages, and to no less for others.
CostTerms cost_terms(const Plan& plan, Count count, int element_bytes = 4);

/// What a benchmark measured of one algorithm at one size.
struct Measurement {
  std::string form;  ///< What shares its parameters: algorithms that move bytes in the same way.
  CostTerms terms;
  double time_s = 0;
};

/// Messages with the same parameters: by one protocol, in one level of cache.
struct Regime {
  double up_to_bytes = 0;  ///< Of a message. The last regime has no end, whatever stands here.
  Network network;         ///< One level: `between` and `reduce_s_per_byte`.
};

/// Parameters by form, each form's regimes in rising order.
struct Model {
  std::map<std::string, std::vector<Regime>> forms;

  /// Nothing for a form that was not measured.
  std::optional<double> time_s(const std::string& form, const CostTerms& terms) const;
};

/// The parameters that explain what was measured: per form and regime the ones, none of them negative, with
/// the least sum of squared *relative* errors, so that a microsecond counts as much as a second.
///
/// A form has one regime, or more (at most 4, of at least 2 sizes of messages each) where Schwarz's criterion
/// says that their parameters explain more than noise of 3%; their borders are those with the least sum.
/// Throws UsageError for a time that is not above zero.
Model fit(const std::vector<Measurement>& measurements);

/// {"push": [{"up_to_bytes": 1024, "latency_s": 2e-7, "s_per_byte": 1e-11, "reduce_s_per_byte": 0}, ...],
/// ...}
std::string to_json(const Model& model);
/// Throws UsageError, naming the place, for anything else.
Model model_from_json(std::string_view text);

}  // namespace lockstep::plan
