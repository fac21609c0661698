// `lockstep doctor` as a user starts it, on whatever machine this is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>

#include "launch/blas.h"
#include "launch/capture.h"

namespace lockstep {
namespace {

using launch::Environment;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::string kCommand = LOCKSTEP_COMMAND;
const std::string kEscape = "\x1b[";

Environment plain_environment() {
  Environment environment = launch::current_environment();
  for (const char* name : {"OPENBLAS_CORETYPE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NO_COLOR"}) {
    environment.erase(name);
  }
  return environment;
}

launch::Captured start(const std::vector<std::string>& command, const Environment& environment) {
  return launch::capture(command, environment, std::chrono::seconds(100));
}

struct Report {
  int exit_code;
  json document;

  json row(const std::string& name) const {
    for (const auto& entry : document.at("rows")) {
      if (entry.at("name") == name) return entry;
    }
    throw std::runtime_error("no row " + name);
  }
};

Report doctor(const Environment& environment) {
  const auto run = start({kCommand, "doctor", "--json"}, environment);
  return {run.exit_code, json::parse(run.output)};  // throws unless it is JSON and nothing else
}

TEST(DoctorCommand, PrintsEveryRowAsJson) {
  const Report report = doctor(plain_environment());
  std::set<std::string> names;
  int faults = 0;
  for (const auto& row : report.document.at("rows")) {
    const std::string status = row.at("status");
    EXPECT_TRUE(status == "ok" || status == "warning" || status == "fault") << row;
    EXPECT_NE(row.at("value"), "") << row;
    EXPECT_EQ(status == "ok", !row.contains("mend")) << row;
    EXPECT_TRUE(names.insert(row.at("name")).second) << "twice: " << row;
    faults += status == "fault" ? 1 : 0;
  }
  for (const char* name :
       {"cores", "memory", "control group", "caches", "memory copy", "LibTorch", "OpenBLAS kernels",
        "threads", "engine threads", "engine shm", "engine gloo", "engine mpi", "kernel", "ulimit -v",
        "ulimit -l", "ulimit -n", "/dev/shm", "SLURM", "ports"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_EQ(report.document.at("faults"), faults);
  EXPECT_EQ(report.exit_code, faults > 0 ? 1 : 0);
  EXPECT_THAT(report.document.at("export").get<std::string>(), HasSubstr("export OMP_NUM_THREADS="));
}

#if !defined(LOCKSTEP_ASAN) && !defined(LOCKSTEP_TSAN)  // whose shadows take terabytes of addresses
TEST(DoctorCommand, EndsWithAFaultUnderTooSmallAnAddressSpace) {
  const auto run = start({"sh", "-c", "ulimit -v 500000; exec \"$0\" doctor", kCommand}, plain_environment());
  EXPECT_EQ(run.exit_code, 1) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("address space: 488 MiB; a program with LibTorch needs 2 GiB"));
  EXPECT_EQ(run.errors, "");
}
#endif

TEST(DoctorCommand, SaysThatTheUsersKernelsAreTooLow) {
  const Environment plain = plain_environment();
  const auto own = launch::probe_openblas(plain);
  const auto right = launch::choose_coretype(launch::detect_cpu(), own, plain);
  const json row = doctor(launch::with_coretype(plain, "Prescott")).row("OpenBLAS kernels");
  EXPECT_THAT(row.at("value").get<std::string>(), HasSubstr("Prescott"));
  if (launch::kernel_tier(right.coretype.empty() ? own.core : right.coretype) == 0) {
    EXPECT_EQ(row.at("status"), "ok");
    return;
  }
  EXPECT_EQ(row.at("status"), "warning");
  EXPECT_EQ(row.at("mend"), right.coretype.empty() ? "unset OPENBLAS_CORETYPE"
                                                   : "export OPENBLAS_CORETYPE=" + right.coretype);
}

TEST(DoctorCommand, SaysThatTheUsersKernelsAreAboveTheCpu) {
  const auto cpu = launch::detect_cpu();
  const Report report = doctor(launch::with_coretype(plain_environment(), "SKYLAKEX"));
  const json row = report.row("OpenBLAS kernels");
  if (cpu.vendor.empty() || cpu.avx512) {
    EXPECT_EQ(row.at("status"), "ok");
    return;
  }
  EXPECT_EQ(row.at("status"), "fault");
  EXPECT_EQ(report.exit_code, 1);
  EXPECT_THAT(row.at("value").get<std::string>(), HasSubstr("AVX-512, which this CPU lacks"));
  EXPECT_THAT(row.at("mend").get<std::string>(), HasSubstr("OPENBLAS_CORETYPE"));
}

TEST(DoctorCommand, FindsAnOpenBlasThatMisreadsTheCpu) {
  Environment environment = plain_environment();
  environment["LD_LIBRARY_PATH"] = LOCKSTEP_FAKE_OPENBLAS;
  const auto best = launch::best_coretype(launch::detect_cpu());
  const Report report = doctor(environment);
  const json row = report.row("OpenBLAS kernels");
  EXPECT_THAT(row.at("value").get<std::string>(), HasSubstr("Prescott"));
  EXPECT_EQ(row.at("status"), best.empty() ? "ok" : "warning");
  if (!best.empty()) {
    EXPECT_EQ(row.at("mend"), "export OPENBLAS_CORETYPE=" + best);
    EXPECT_THAT(report.document.at("export").get<std::string>(),
                HasSubstr(row.at("mend").get<std::string>().substr(7)));
  }
  // A library of two functions cannot multiply: that is LibTorch's fault to tell.
  EXPECT_EQ(report.row("LibTorch").at("status"), "fault");
  EXPECT_EQ(report.exit_code, 1);
}

TEST(DoctorCommand, ColoursOnATerminalOnly) {
  Environment environment = plain_environment();
  environment["TERM"] = "xterm";
  const auto piped = start({kCommand, "doctor"}, environment);
  EXPECT_THAT(piped.output, HasSubstr("OpenBLAS kernels"));
  EXPECT_THAT(piped.output, Not(HasSubstr(kEscape)));
  const std::vector<std::string> on_terminal = {"script", "-qec", kCommand + " doctor", "/dev/null"};
  EXPECT_THAT(start(on_terminal, environment).output, HasSubstr(kEscape));
  environment["NO_COLOR"] = "1";
  const auto colourless = start(on_terminal, environment);
  EXPECT_THAT(colourless.output, HasSubstr("OpenBLAS kernels"));
  EXPECT_THAT(colourless.output, Not(HasSubstr(kEscape)));
}

}  // namespace
}  // namespace lockstep
