#include "lockstep/plan/cost.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "lockstep/error.h"
#include "plan/check.h"

namespace lockstep::plan {

namespace {

/// The letters of the literature: p ranks, n bytes, a latency, b seconds per byte, g seconds per byte added.
struct Terms {
  double p, n, a, b, g;
  int ceil_log, floor_log;
  bool is_power;

  double message(double bytes) const { return a + bytes * b; }
};

std::optional<double> all_reduce_formula(const std::string& algorithm, const Terms& t) {
  const double p = t.p, n = t.n;
  const double core = std::exp2(t.floor_log);
  if (algorithm == "naive") return 2 * (p - 1) * t.message(n) + (p - 1) * n * t.g;
  if (algorithm == "alltoall") return (p - 1) * t.message(n) + (p - 1) * n * t.g;
  if (algorithm == "ring" || algorithm == "direct")
    return 2 * (p - 1) * t.message(n / p) + (p - 1) * n / p * t.g;
  if (algorithm == "tree") return t.ceil_log * (2 * t.message(n) + n * t.g);
  if (algorithm == "recursivedoubling") {
    const double fold = t.is_power ? 0 : 2 * t.message(n) + n * t.g;
    return t.floor_log * (t.message(n) + n * t.g) + fold;
  }
  if (algorithm == "halvingdoubling") {
    const double fold = t.is_power ? 0 : 2 * t.message(n) + n * t.g;
    return 2 * t.floor_log * t.a + n * (core - 1) / core * (2 * t.b + t.g) + fold;
  }
  if (algorithm == "oneshot") return (p > 1 ? t.a : 0) + (p - 1) * n * (t.b + t.g);
  if (algorithm == "push") return (p > 1 ? 2 * t.a : 0) + (p - 1) / p * n * (2 * t.b + t.g);
  return std::nullopt;
}

std::optional<double> hierarchical_formula(const Shape& shape, double n, const Network& network) {
  const int per_node = shape.ranks_per_node;
  if (network.ranks_per_node != per_node || per_node < 1 || shape.world % per_node != 0) return std::nullopt;
  const double l = per_node, nodes = shape.world / l;
  const Link& in = network.inside;
  const Link& out = network.between;
  const double g = network.reduce_s_per_byte;
  const double inside = (l - 1) * (in.latency_s + n / l * in.s_per_byte);
  const double between = 2 * (nodes - 1) * (out.latency_s + n / l / nodes * out.s_per_byte);
  return 2 * inside + between + (l - 1) * n / l * g + (nodes - 1) * n / l / nodes * g;
}

/// Two flags after each other; between them everybody loads or stores, at once.
double one_sided_formula(Collective collective, const Terms& t) {
  const double p = t.p, n = t.n;
  if (p == 1) return 0;
  switch (collective) {
    case Collective::kBroadcast:
      return 2 * t.a + n * t.b;
    case Collective::kReduce:
      return 2 * t.a + (p - 1) / p * n * (t.b + t.g) + n / p * t.b;
    case Collective::kReduceScatter:
      return 2 * t.a + (p - 1) / p * n * (t.b + t.g);
    default:  // all-gather and all-to-all, whose n is of one part
      return 2 * t.a + (p - 1) * n * t.b;
  }
}

std::optional<double> rooted_formula(Collective collective, const std::string& algorithm, int root,
                                     const Terms& t) {
  const double p = t.p, n = t.n;
  const bool even_tree =
      t.is_power && root == 0;  // other trees have ends of unequal size, or messages in two parts
  const double add = collective == Collective::kReduce ? n * t.g : 0;
  if (algorithm == "linear") return (p - 1) * (t.message(n) + add);
  const bool whole = collective == Collective::kBroadcast || collective == Collective::kReduce;
  if (algorithm == "binomial" && whole) return t.ceil_log * (t.message(n) + add);
  if (algorithm == "binomial" && even_tree) return t.ceil_log * t.a + (p - 1) * n * t.b;
  if (algorithm == "scatterallgather" && even_tree) {
    return t.ceil_log * t.a + (p - 1) / p * n * t.b + (p - 1) * t.message(n / p);
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> formula_time(Collective collective, std::string_view algorithm, const Shape& shape,
                                   int64_t bytes, const Network& network) {
  const std::string plain = plain_name(algorithm);
  if (!network.slow.empty() || !network.slow_links.empty()) return std::nullopt;
  const auto n = static_cast<double>(bytes);
  if (collective == Collective::kAllReduce && plain == "hierarchical")
    return hierarchical_formula(shape, n, network);
  const bool one_node = network.ranks_per_node >= shape.world;
  if (network.ranks_per_node > 0 && !one_node) return std::nullopt;
  const Link& link = one_node ? network.inside : network.between;
  const auto world = static_cast<unsigned>(shape.world);
  const Terms t{.p = static_cast<double>(shape.world),
                .n = n,
                .a = link.latency_s,
                .b = link.s_per_byte,
                .g = network.reduce_s_per_byte,
                .ceil_log = static_cast<int>(std::bit_width(world - 1)),
                .floor_log = static_cast<int>(std::bit_width(world)) - 1,
                .is_power = std::has_single_bit(world)};
  if (collective != Collective::kAllReduce && (plain == "push" || plain == "pull")) {
    return one_sided_formula(collective, t);
  }
  switch (collective) {
    case Collective::kAllReduce:
      return all_reduce_formula(plain, t);
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kScatter:
    case Collective::kGather:
      return rooted_formula(collective, plain, shape.root, t);
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return (t.p - 1) * t.message(n);
    case Collective::kReduceScatter:
      return (t.p - 1) * (t.message(n / t.p) + n / t.p * t.g);
    case Collective::kBarrier:
      if (plain == "flags") return t.p > 1 ? t.a : 0;
      return plain == "linear" ? 2 * (t.p - 1) * t.a : t.ceil_log * t.a;
  }
  return std::nullopt;
}

bool applies(const Algorithm& algorithm, const Shape& shape, const Network& network) {
  if (algorithm.one_sided) return network.ranks_per_node >= shape.world;
  if (algorithm.name == "hierarchical")
    return network.ranks_per_node > 0 && network.ranks_per_node < shape.world;
  return true;
}

double model_time(Collective collective, std::string_view algorithm, const Shape& shape, int64_t bytes,
                  const Network& network) {
  if (const auto time = formula_time(collective, algorithm, shape, bytes, network)) return *time;
  return simulate(make_plan(collective, algorithm, shape), network, bytes, /*element_bytes=*/1).time_s;
}

Estimate choose_algorithm(Collective collective, const Shape& shape, int64_t bytes, const Network& network) {
  Estimate best{.algorithm = "", .time_s = std::numeric_limits<double>::infinity()};
  for (const auto& algorithm : algorithms_of(collective)) {
    if (!applies(algorithm, shape, network)) continue;
    const double time_s = model_time(collective, algorithm.name, shape, bytes, network);
    if (time_s < best.time_s) best = {.algorithm = std::string(algorithm.name), .time_s = time_s};
  }
  return best;
}

}  // namespace lockstep::plan

namespace lockstep {

double estimate_communication_time(int64_t bytes, int world_size, double bandwidth, double latency,
                                   std::string_view algorithm) {
  plan::check_world("estimate_communication_time", world_size);
  if (bytes < 0) throw UsageError(fmt::format("estimate_communication_time: {} bytes", bytes));
  if (!(bandwidth > 0))
    throw UsageError(fmt::format("estimate_communication_time: a bandwidth of {}", bandwidth));
  if (!(latency >= 0)) throw UsageError(fmt::format("estimate_communication_time: a latency of {}", latency));
  const plan::Network network{.between = {.latency_s = latency, .s_per_byte = 1 / bandwidth}};
  const plan::Shape shape{.world = world_size};
  using enum plan::Collective;
  if (algorithm == "auto") return plan::choose_algorithm(kAllReduce, shape, bytes, network).time_s;
  return plan::model_time(kAllReduce, algorithm, shape, bytes, network);
}

}  // namespace lockstep
