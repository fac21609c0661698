#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/sample.h"
#include "cli/temporary_folder.h"
#include "cli/torch_probe.h"
#include "launch/blas.h"
#include "launch/capture.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

struct BlasBenchOptions {
  int64_t rounds = 5;
  JsonOutput json;
};

/// A way to start the same program.
struct BlasKernels {
  std::string name;
  launch::Environment environment;
  bool under_lockstep_run = false;
  std::string core = {};
  Sample gflops = {};
};

/// What one rank under `lockstep run` finds.
TorchProbe probe_under_run(const launch::Environment& environment) {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  const TemporaryFolder logs;
  const auto run = capture_until_interrupted(
      {(here / "lockstep").string(), "run", "--nproc-per-node", "1", "--tee", "0", "--log-dir",
       logs.path().string(), "--", (here / "lockstep-torch").string(), "probe"},
      environment, std::chrono::seconds(60));
  if (!run.ok())
    throw Error(fmt::format("lockstep run ended with exit code {}:\n{}", run.exit_code, run.errors));
  std::ifstream log(logs.path() / "rank_0" / "stdout.log");
  std::stringstream text;
  text << log.rdbuf();
  return parse_torch_probe(text.str());
}

/// The probe checks a product against whole numbers before it times one, and fails if it is wrong.
void measure(BlasKernels& contender) {
  const TorchProbe probe = contender.under_lockstep_run ? probe_under_run(contender.environment)
                                                        : probe_torch(contender.environment);
  stop_if_interrupted();
  if (!probe.ok) throw Error(fmt::format("{}: lockstep-torch: {}", contender.name, probe.problem));
  contender.core = probe.blas_core;
  contender.gflops.add(probe.gflops);
}

std::vector<BlasKernels> contenders(const launch::Environment& environment) {
  const launch::Environment untouched = launch::with_coretype(environment, "");
  std::vector<BlasKernels> all = {
      {.name = "by itself", .environment = untouched},
      {.name = "under lockstep run", .environment = untouched, .under_lockstep_run = true}};
  const std::string asked = launch::asked_coretype(environment);
  if (!asked.empty()) {
    all.push_back({.name = fmt::format("OPENBLAS_CORETYPE={}", asked), .environment = environment});
  }
#if defined(__x86_64__)
  // What it costs when OpenBLAS takes a CPU for the oldest that it knows.
  all.push_back(
      {.name = "OPENBLAS_CORETYPE=Prescott", .environment = launch::with_coretype(environment, "Prescott")});
#endif
  return all;
}

double ratio(const BlasKernels& contender, const BlasKernels& first) {
  return contender.gflops.median() / first.gflops.median();
}

void print(const BlasBenchOptions& options, const std::vector<BlasKernels>& all,
           const launch::BlasChoice& choice) {
  fmt::print(
      "LibTorch's float product of 1024 x 1024 matrices on one core, checked before it is timed; {} rounds,\n"
      "alternated; GFLOP/s: median (lowest to highest)\n\n",
      options.rounds);
  fmt::print("{:<28} {:<20} {:<26} {}\n", "program started", "OpenBLAS kernels", "GFLOP/s", "ratio");
  for (const auto& contender : all) {
    fmt::print("{:<28} {:<20} {:<26} {:.2f}\n", contender.name, contender.core, contender.gflops.text(),
               ratio(contender, all[0]));
  }
  fmt::print("\n{}; lockstep run {}\n", choice.reason,
             choice.coretype.empty() ? "leaves it alone"
                                     : fmt::format("sets OPENBLAS_CORETYPE={}", choice.coretype));
}

nlohmann::json to_json(const BlasBenchOptions& options, const std::vector<BlasKernels>& all,
                       const launch::BlasChoice& choice) {
  auto rows = nlohmann::json::array();
  for (const auto& contender : all) {
    rows.push_back({{"started", contender.name},
                    {"core", contender.core},
                    {"gflops",
                     {{"median", contender.gflops.median()},
                      {"low", contender.gflops.low()},
                      {"high", contender.gflops.high()}}},
                    {"ratio", ratio(contender, all[0])}});
  }
  return {{"rounds", options.rounds},    {"size", 1024},           {"threads", 1}, {"rows", std::move(rows)},
          {"coretype", choice.coretype}, {"reason", choice.reason}};
}

/// Whether the kernels that `lockstep run` should have brought about were the ones that ran.
void require_fast_kernels(const std::vector<BlasKernels>& all, const launch::BlasChoice& choice) {
  const std::string expected = choice.coretype.empty() ? all[0].core : choice.coretype;
  const std::string& core = all[1].core;
  if (launch::kernel_tier(core) >= launch::kernel_tier(expected)) return;
  throw Error(
      fmt::format("bench blas: under lockstep run OpenBLAS ran {} kernels, expected {}; hint: lockstep "
                  "doctor tells more",
                  core, expected));
}

int bench_blas(const BlasBenchOptions& options) {
  const launch::Environment environment = launch::current_environment();
  const launch::Environment untouched = launch::with_coretype(environment, "");
  const launch::BlasChoice choice =
      launch::choose_coretype(launch::detect_cpu(), launch::probe_openblas(untouched), untouched);
  std::vector<BlasKernels> all = contenders(environment);
  for (int64_t round = 0; round < options.rounds; ++round) {
    for (auto& contender : all) measure(contender);
  }
  require_fast_kernels(all, choice);
  if (options.json.prints_text()) print(options, all, choice);
  options.json.write(to_json(options, all, choice));
  return 0;
}

}  // namespace

Action define_bench_blas(Flags flags) {
  const auto options = std::make_shared<BlasBenchOptions>();
  flags.number("--rounds", options->rounds, 1, 1000, "Starts of each program");
  options->json.add_to(flags);
  return [options](const Invocation&) { return until_interrupted([&] { return bench_blas(*options); }); };
}

}  // namespace lockstep::cli
