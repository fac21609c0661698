#include "lockstep/plan/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "lockstep/error.h"
#include "plan/least_squares.h"

namespace lockstep::plan {

namespace {

constexpr size_t kMostRegimes = 4;
constexpr size_t kLeastSizes = 2;  // of a regime: as many as tell latency and bandwidth apart

/// Parameters for a run of sizes, and the squared error that they leave.
struct Piece {
  size_t begin = 0, end = 0;  // of the sizes
  Network network = {};
  double error = 0;
};

/// The measurements of one form, by the size of their messages.
class FormFit {
 public:
  explicit FormFit(std::vector<Measurement> measurements) : measurements_(std::move(measurements)) {
    std::set<double> sizes;
    for (const auto& measurement : measurements_) sizes.insert(measurement.terms.message_bytes());
    sizes_.assign(sizes.begin(), sizes.end());
    pieces_.resize(sizes_.size());
    for (size_t begin = 0; begin < sizes_.size(); ++begin) {
      for (size_t end = begin + 1; end <= sizes_.size(); ++end) pieces_[begin].push_back(make(begin, end));
    }
  }

  std::vector<Regime> regimes() const {
    std::vector<Piece> best = {piece(0, sizes_.size())};
    for (size_t count = 2; count <= kMostRegimes && count * kLeastSizes <= sizes_.size(); ++count) {
      auto candidate = cut(0, count);
      if (score(candidate) < score(best)) best = std::move(candidate);
    }
    std::vector<Regime> found;
    for (const auto& [begin, end, network, error] : best) {
      // Nobody measured between two regimes: each gets its half, by ratio.
      const double border = end < sizes_.size() ? std::sqrt(sizes_[end - 1] * sizes_[end]) : sizes_.back();
      found.push_back({.up_to_bytes = border, .network = network});
    }
    return found;
  }

 private:
  static double error(const std::vector<Piece>& pieces) {
    double sum = 0;
    for (const auto& piece : pieces) sum += piece.error;
    return sum;
  }

  /// Schwarz's criterion: the less the better. A parameter must explain more than chance would.
  double score(const std::vector<Piece>& pieces) const {
    constexpr double kNoise = 0.03;    // relative: times do not repeat better than that
    constexpr double kParameters = 4;  // of a regime, its border included
    const auto count = static_cast<double>(measurements_.size());
    const double variance = std::max(error(pieces) / count, kNoise * kNoise);
    return count * std::log(variance) + kParameters * static_cast<double>(pieces.size()) * std::log(count);
  }

  Piece make(size_t begin, size_t end) const {
    std::vector<Equation> equations;
    for (const auto& [form, terms, time_s] : measurements_) {
      if (terms.message_bytes() < sizes_[begin] || terms.message_bytes() > sizes_[end - 1]) continue;
      equations.push_back(
          {.factors = {terms.rounds / time_s, terms.bytes / time_s, terms.reduced_bytes / time_s},
           .value = 1});
    }
    const auto [latency_s, s_per_byte, reduce_s_per_byte] = non_negative_least_squares(equations);
    return {.begin = begin,
            .end = end,
            .network = {.between = {.latency_s = latency_s, .s_per_byte = s_per_byte},
                        .reduce_s_per_byte = reduce_s_per_byte},
            .error = squared_error(equations, {latency_s, s_per_byte, reduce_s_per_byte})};
  }

  const Piece& piece(size_t begin, size_t end) const { return pieces_[begin][end - begin - 1]; }

  /// The best `count` pieces of the sizes from `begin` on.
  std::vector<Piece> cut(size_t begin, size_t count) const {
    if (count == 1) return {piece(begin, sizes_.size())};
    std::vector<Piece> best;
    for (size_t end = begin + kLeastSizes; end + (count - 1) * kLeastSizes <= sizes_.size(); ++end) {
      std::vector<Piece> candidate = cut(end, count - 1);
      candidate.insert(candidate.begin(), piece(begin, end));
      if (best.empty() || error(candidate) < error(best)) best = std::move(candidate);
    }
    return best;
  }

  std::vector<Measurement> measurements_;
  std::vector<double> sizes_;               // of messages, rising
  std::vector<std::vector<Piece>> pieces_;  // by begin, then by end
};

}  // namespace

CostTerms cost_terms(const Plan& plan, Count count, int element_bytes) {
  const auto time = [&](const Network& network) {
    return simulate(plan, network, count, element_bytes).time_s;
  };
  return {.rounds = time({.between = {.latency_s = 1}}),
          .bytes = time({.between = {.s_per_byte = 1}}),
          .reduced_bytes = time({.reduce_s_per_byte = 1})};
}

std::optional<double> Model::time_s(const std::string& form, const CostTerms& terms) const {
  const auto found = forms.find(form);
  if (found == forms.end() || found->second.empty()) return std::nullopt;
  const auto& regimes = found->second;
  const auto regime = std::find_if(regimes.begin(), regimes.end() - 1, [&](const Regime& candidate) {
    return terms.message_bytes() <= candidate.up_to_bytes;
  });
  return terms.time_s(regime->network);
}

Model fit(const std::vector<Measurement>& measurements) {
  std::map<std::string, std::vector<Measurement>> by_form;
  for (const auto& measurement : measurements) {
    if (!(measurement.time_s > 0) || std::isinf(measurement.time_s)) {
      throw UsageError(
          fmt::format("fit: {} took {} s; hint: times are above zero", measurement.form, measurement.time_s));
    }
    by_form[measurement.form].push_back(measurement);
  }
  Model model;
  for (auto& [form, own] : by_form) model.forms[form] = FormFit(std::move(own)).regimes();
  return model;
}

}  // namespace lockstep::plan
