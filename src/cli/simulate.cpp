#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/collective_word.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/nearest.h"
#include "cli/pipeline_options.h"
#include "cli/progress.h"
#include "cli/size.h"
#include "lockstep/error.h"
#include "lockstep/plan/cost.h"

namespace lockstep::cli {

namespace {

struct SimulateOptions {
  std::string collective;
  std::string algorithms = "all";
  std::string bytes = "1MiB";
  int64_t world = 8;
  int64_t root = 0;
  int64_t ranks_per_node = 0;
  double alpha_us = 5, gbps = 100;
  double intra_alpha_us = 1, intra_gbps = 800;
  double gamma_gbps = 0;
  std::vector<std::string> slow;
  JsonOutput json;
};

struct AlgorithmRow {
  std::string algorithm;
  plan::Simulation simulation;
  std::optional<double> formula_s;
};

plan::Link link(double alpha_us, double gbps) {
  return {.latency_s = alpha_us * 1e-6, .s_per_byte = 8 / (gbps * 1e9)};
}

plan::Network network_of(const SimulateOptions& options) {
  plan::Network network{.between = link(options.alpha_us, options.gbps),
                        .inside = link(options.intra_alpha_us, options.intra_gbps),
                        .ranks_per_node = static_cast<int>(options.ranks_per_node),
                        .reduce_s_per_byte = options.gamma_gbps > 0 ? 8 / (options.gamma_gbps * 1e9) : 0};
  for (const auto& text : options.slow) {
    const auto equals = text.find('=');
    int rank = -1;
    double factor = 0;
    const auto rank_end = std::from_chars(text.data(), text.data() + std::min(equals, text.size()), rank);
    const char* const value = text.data() + std::min(equals + 1, text.size());
    const auto factor_end = std::from_chars(value, text.data() + text.size(), factor);
    const bool reads = equals != std::string::npos && rank_end.ptr == text.data() + equals &&
                       factor_end.ptr == text.data() + text.size() && factor_end.ec == std::errc();
    if (!reads || rank < 0 || rank >= options.world || !(factor > 0)) {
      throw UsageError(fmt::format("--slow '{}': not RANK=FACTOR with a rank below {} and a factor above 0",
                                   text, options.world));
    }
    network.slow[rank] = factor;
  }
  return network;
}

std::vector<plan::Algorithm> chosen(const SimulateOptions& options, plan::Collective collective,
                                    const plan::Shape& shape, const plan::Network& network) {
  std::vector<plan::Algorithm> found;
  const auto all = plan::algorithms_of(collective);
  if (options.algorithms == "all") {
    for (const auto& algorithm : all) {
      if (plan::applies(algorithm, shape, network)) found.push_back(algorithm);
    }
    return found;
  }
  for (size_t begin = 0; begin <= options.algorithms.size();) {
    const size_t end = std::min(options.algorithms.find(',', begin), options.algorithms.size());
    const std::string wanted = plan::plain_name(options.algorithms.substr(begin, end - begin));
    const auto same = [&](const plan::Algorithm& algorithm) {
      return plan::plain_name(algorithm.name) == wanted;
    };
    const auto match = std::find_if(all.begin(), all.end(), same);
    if (match == all.end()) {
      std::vector<std::string> known;
      for (const auto& algorithm : all) known.emplace_back(algorithm.name);
      const std::string message = fmt::format("--algorithms '{}': unknown for {}; hint: all, or some of {}",
                                              options.algorithms.substr(begin, end - begin),
                                              plan::name(collective), fmt::join(known, ", "));
      throw UsageError(with_nearest(message, wanted, known));
    }
    found.push_back(*match);
    begin = end + 1;
  }
  return found;
}

void print(const SimulateOptions& options, plan::Collective collective, int64_t bytes,
           const std::vector<AlgorithmRow>& rows) {
  fmt::print("{} of {} on {} ranks: {} us and {} Gbit/s{}\n\n", plan::name(collective), bytes_text(bytes),
             options.world, options.alpha_us, options.gbps,
             options.ranks_per_node > 0
                 ? fmt::format(" between nodes, {} us and {} Gbit/s inside nodes of {}",
                               options.intra_alpha_us, options.intra_gbps, options.ranks_per_node)
                 : "");
  fmt::print("{:<20} {:>14} {:>14} {:>8} {:>14} {:>14}\n", "algorithm", "time", "formula", "rounds",
             "bytes/rank", "bytes/link");
  const auto time = [](double seconds) { return fmt::format("{:.3f} us", seconds * 1e6); };
  const auto winner = std::min_element(
      rows.begin(), rows.end(),
      [](const AlgorithmRow& a, const AlgorithmRow& b) { return a.simulation.time_s < b.simulation.time_s; });
  for (const auto& row : rows) {
    const auto& traffic = row.simulation.traffic;
    fmt::print("{:<20} {:>14} {:>14} {:>8} {:>14} {:>14}{}\n", row.algorithm, time(row.simulation.time_s),
               row.formula_s ? time(*row.formula_s) : "-", traffic.rounds, bytes_text(traffic.bytes_per_rank),
               bytes_text(traffic.bytes_per_link), &row == &*winner ? "  <- fastest" : "");
  }
}

int simulate(const SimulateOptions& options) {
  refuse_as_collective("simulate", options.collective);
  const plan::Collective collective = collective_named(options.collective);
  const int64_t bytes = parse_bytes("--bytes", options.bytes);
  const plan::Network network = network_of(options);
  const plan::Shape shape{
      .world = static_cast<int>(options.world),
      .root = static_cast<int>(options.root),
      .ranks_per_node = options.ranks_per_node > 0 ? static_cast<int>(options.ranks_per_node) : 1};
  const int element = bytes % 4 == 0 ? 4 : 1;
  std::vector<AlgorithmRow> rows;
  const auto algorithms = chosen(options, collective, shape, network);
  for (const auto& algorithm : algorithms) {
    const SlowWork slow(fmt::format("simulating {} by {} on {} ranks ({} of {})", plan::name(collective),
                                    algorithm.name, options.world, rows.size() + 1, algorithms.size()));
    rows.push_back({std::string(algorithm.name),
                    plan::simulate(algorithm.make(shape), network, bytes / element, element),
                    plan::formula_time(collective, algorithm.name, shape, bytes, network)});
  }
  if (options.json.prints_text()) print(options, collective, bytes, rows);
  auto document = nlohmann::json::array();
  for (const auto& row : rows) {
    document.push_back(
        {{"algorithm", row.algorithm},
         {"world", options.world},
         {"bytes", bytes},
         {"time_us", row.simulation.time_s * 1e6},
         {"rounds", row.simulation.traffic.rounds},
         {"bytes_per_rank", row.simulation.traffic.bytes_per_rank},
         {"bytes_per_link", row.simulation.traffic.bytes_per_link},
         {"formula_us", row.formula_s ? nlohmann::json(*row.formula_s * 1e6) : nlohmann::json()}});
  }
  options.json.write(document);
  return 0;
}

}  // namespace

Action define_simulate(Flags flags) {
  const auto options = std::make_shared<SimulateOptions>();
  flags.word(
      "collective", options->collective,
      "allreduce, broadcast, reduce, scatter, gather, allgather, ...; or pipeline, which has flags of its "
      "own: see lockstep simulate pipeline --help",
      true, collective_words());
  flags.number("--world", options->world, 1, 32768, "Ranks");
  flags.text("--bytes", options->bytes, "Size of the buffer, or of one rank's part where each has one",
             "SIZE");
  flags.number("--root", options->root, 0, 32767, "Root, where there is one");
  flags.number("--alpha-us", options->alpha_us, 0, 1e9, "Latency of a message, in microseconds");
  flags.number("--gbps", options->gbps, 1e-9, 1e9, "Bandwidth of a link, in gigabits per second");
  flags.number("--ranks-per-node", options->ranks_per_node, 0, 32768,
               "Two levels: ranks on each node; 0 for one level");
  flags.number("--intra-alpha-us", options->intra_alpha_us, 0, 1e9, "Latency inside a node");
  flags.number("--intra-gbps", options->intra_gbps, 1e-9, 1e9, "Bandwidth inside a node");
  flags.number("--gamma-gbps", options->gamma_gbps, 0, 1e9, "How fast a rank adds; 0: additions are free");
  flags.texts("--slow", options->slow, "A rank that takes FACTOR times as long; may be repeated",
              "RANK=FACTOR");
  flags.text("--algorithms", options->algorithms, "Some, such as ring,tree, or all that apply", "LIST");
  options->json.add_to(flags);
  return [options](const Invocation&) { return simulate(*options); };
}

}  // namespace lockstep::cli
