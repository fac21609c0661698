#include "cli/bench_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "cli/mlp_sizes.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;

std::string settings_text(const Json& hello) {
  return fmt::format("{} threads on CPUs {} with OPENBLAS_CORETYPE '{}'", hello["threads"].get<int>(),
                     fmt::join(hello["cpus"].get<std::vector<int>>(), ","),
                     hello["coretype"].get<std::string>());
}

}  // namespace

std::unique_ptr<AskedJob> start_system(const std::string& name, int64_t world,
                                       const std::vector<std::string>& program,
                                       const std::filesystem::path& folder,
                                       const std::filesystem::path& commands) {
  auto environment = launch::current_environment();
  environment.erase("LOCKSTEP_ENGINE");  // --engine says it
  environment["USE_LIBUV"] = "0";  // Debian 13 builds PyTorch without it, which asks for it all the same
  return std::make_unique<AskedJob>(AskedJob::Options{.name = name,
                                                      .folder = folder,
                                                      .command = commands / "lockstep",
                                                      .program = program,
                                                      .world = static_cast<int>(world),
                                                      .environment = std::move(environment)});
}

std::filesystem::path find_torch_command(const std::filesystem::path& commands) {
  auto command = commands / "lockstep-torch";
  if (std::filesystem::exists(command)) return command;
  throw Error(fmt::format("cannot start {}; hint: this build has no LibTorch part, build the preset release",
                          command.string()));
}

BenchSettings compare_settings(const std::string& bench, const AskedJobs& jobs) {
  const auto own = jobs.at("lockstep")->ask({{"do", "hello"}});
  BenchSettings settings = {
      .cpus = {}, .threads = own[0]["threads"], .coretype = own[0]["coretype"], .versions = {}};
  for (const auto& hello : own)
    settings.cpus.push_back(fmt::format("{}", fmt::join(hello["cpus"].get<std::vector<int>>(), ",")));
  for (const auto& [name, job] : jobs) {
    const auto answers = job->ask({{"do", "hello"}});
    settings.versions[name] = answers[0]["version"];
    for (size_t rank = 0; rank < answers.size(); ++rank) {
      if (answers[rank].empty()) continue;
      const std::string found = settings_text(answers[rank]), expected = settings_text(own[rank]);
      if (found == expected) continue;
      throw Error(fmt::format("{}: rank {} of {} computes with {}, that of lockstep with {}", bench, rank,
                              name, found, expected));
    }
  }
  return settings;
}

bool shares_cores(const BenchSettings& settings) {
  std::set<std::string> cores;
  for (const auto& cpus : settings.cpus) {
    for (const auto& cpu : parts_of(cpus)) cores.insert(cpu);
  }
  return cores.size() < settings.cpus.size();
}

Json settings_json(const BenchSettings& settings) {
  return {{"cpus", settings.cpus},
          {"threads", settings.threads},
          {"openblas_coretype", settings.coretype},
          {"versions", settings.versions}};
}

void print_settings(const Json& settings) {
  const std::string coretype = settings["openblas_coretype"];
  fmt::print("every rank of every system: {} of BLAS and OpenMP, on CPUs {}, OPENBLAS_CORETYPE {}\n",
             counted(settings["threads"], "thread"),
             fmt::join(settings["cpus"].get<std::vector<std::string>>(), " | "),
             coretype.empty() ? "not set" : coretype);
  const Json& versions = settings["versions"];
  fmt::print("LibTorch {}", versions["lockstep"].get<std::string>());
  if (versions.contains("pytorch"))
    fmt::print("; Debian's python3-torch {}", versions["pytorch"].get<std::string>());
  fmt::print("\n");
}

std::string counted(int64_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace lockstep::cli
