#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/doctor/rows.h"
#include "lockstep/error.h"

namespace lockstep::cli::doctor {
namespace {

using testing::HasSubstr;
using testing::Not;

TorchProbe torch_with(const std::string& core, double gflops) {
  return {.ok = true,
          .version = "2.6.0",
          .cpu_capability = "AVX512",
          .threads = 4,
          .blas_threads = 4,
          .blas_library = "/lib/libblas.so.3",
          .blas_core = core,
          .gflops = gflops};
}

launch::OpenBlas openblas_with(const std::string& core) {
  return {.found = true, .core = core, .config = "OpenBLAS 0.3.29", .problem = ""};
}

/// A server of four cores with AVX-512 where all is well.
Facts healthy() {
  Facts facts;
  facts.cpu = {.vendor = "GenuineIntel",
               .model_name = "A Xeon",
               .avx = true,
               .avx2 = true,
               .fma = true,
               .avx512 = true};
  facts.cores = {{{0}}, {{1}}, {{2}}, {{3}}};
  facts.machine_cpus = 4;
  facts.memory = {.total_bytes = 16 * kGibibyte, .available_bytes = 12 * kGibibyte};
  facts.caches = {{1, 48 << 10, 1}, {2, 2 << 20, 1}, {3, 32 << 20, 4}};
  facts.blas.found = facts.blas.mended = openblas_with("SkylakeX");
  facts.blas.torch = facts.blas.mended_torch = torch_with("SkylakeX", 158);
  facts.copy = {.one_core = 10e9, .all_cores = 30e9};
  facts.limits = {
      .address_space_bytes = {}, .locked_memory_bytes = 8 << 20, .open_files = 1024, .open_files_hard = 4096};
  facts.dev_shm = {.found = true, .total_bytes = kGibibyte, .free_bytes = kGibibyte};
  facts.network = {
      .loopback_problem = "", .usual_port_problem = "", .first_local_port = 32768, .last_local_port = 60999};
  return facts;
}

/// OpenBLAS 0.3.21 on a Sapphire Rapids VM without AMX and bf16.
Facts misread() {
  Facts facts = healthy();
  facts.blas.found = openblas_with("Prescott");
  facts.blas.torch = torch_with("Prescott", 33);
  facts.blas.right = {.coretype = "SKYLAKEX", .reason = ""};
  return facts;
}

TEST(Doctor, FindsNothingToMendOnAHealthyMachine) {
  for (const auto& row : all_rows(healthy())) {
    if (row.name.starts_with("engine")) continue;  // depends on what this build found
    EXPECT_EQ(row.status, Status::kOk) << row.name << ": " << row.value;
    EXPECT_EQ(row.mend, "") << row.name;
    EXPECT_NE(row.value, "") << row.name;
  }
}

TEST(Doctor, SaysWhatEveryFindingIsMendedWith) {
  Facts sick = misread();
  sick.environment["OMP_NUM_THREADS"] = "lots";
  sick.memory.available_bytes = kGibibyte / 2;
  sick.cgroup = {.cpus = 0.5, .memory_bytes = kGibibyte};
  sick.blas.torch = sick.blas.mended_torch = {};
  sick.kernel = {.pidfd_problem = "no", .subreaper_problem = "no", .memfd_problem = "no"};
  sick.limits = {
      .address_space_bytes = 1 << 20, .locked_memory_bytes = 0, .open_files = 64, .open_files_hard = 64};
  sick.dev_shm = {};
  sick.engines = {.gloo_problem = "no", .mpirun_problem = "no"};
  sick.network.loopback_problem = "no";
  for (const auto& row : all_rows(sick)) {
    const bool never_wrong = row.name == "cores" || row.name == "caches" || row.name == "memory copy" ||
                             row.name == "SLURM" || row.name == "engine threads";
    EXPECT_EQ(row.status == Status::kOk, never_wrong) << row.name << ": " << row.value;
    EXPECT_EQ(row.mend.empty(), never_wrong) << row.name;
  }
}

TEST(OpenBlasRow, PutsTheRateOfTheRightKernelsBesideAMisreading) {
  const Row row = openblas_row(misread());
  EXPECT_EQ(row.status, Status::kWarning);
  EXPECT_EQ(
      row.value,
      "Prescott (SSE): 33.0 GFLOP/s on one core; the right ones, SkylakeX (AVX-512), reach 158.0; OpenBLAS "
      "misreads this CPU");
  EXPECT_EQ(row.mend, "export OPENBLAS_CORETYPE=SKYLAKEX");
  EXPECT_EQ(row.numbers.at("gflops"), 33);
  EXPECT_EQ(row.numbers.at("right_gflops"), 158);
  EXPECT_EQ(export_command(misread()),
            "export OMP_NUM_THREADS=4 OPENBLAS_NUM_THREADS=4 OPENBLAS_CORETYPE=SKYLAKEX");
}

TEST(OpenBlasRow, SaysWhenTheUsersSettingIsTooLow) {
  Facts facts = misread();
  facts.environment["OPENBLAS_CORETYPE"] = "Prescott";
  facts.blas.right.coretype = "";
  const Row row = openblas_row(facts);
  EXPECT_EQ(row.status, Status::kWarning);
  EXPECT_THAT(row.value, HasSubstr("OPENBLAS_CORETYPE is set too low"));
  EXPECT_EQ(row.mend, "unset OPENBLAS_CORETYPE");
}

TEST(OpenBlasRow, CallsKernelsThatTheCpuLacksAFault) {
  Facts facts = healthy();
  facts.cpu.avx512 = false;
  facts.environment["OPENBLAS_CORETYPE"] = "SKYLAKEX";
  facts.blas.torch = {};
  facts.blas.torch.problem = "ended by SIGILL";
  facts.blas.mended = openblas_with("Haswell");
  facts.blas.mended_torch = torch_with("Haswell", 70);
  const Row row = openblas_row(facts);
  EXPECT_EQ(row.status, Status::kFault);
  EXPECT_EQ(row.value,
            "OPENBLAS_CORETYPE=SKYLAKEX asks for AVX-512, which this CPU lacks: lockstep-torch was ended by "
            "SIGILL");
  EXPECT_EQ(row.mend, "unset OPENBLAS_CORETYPE");
  EXPECT_EQ(libtorch_row(facts).status, Status::kOk) << "LibTorch itself is not to blame";
}

TEST(OpenBlasRow, NamesAnotherBlas) {
  Facts facts = healthy();
  facts.blas.torch.blas_core = "";
  facts.blas.torch.gflops = 2;
  const Row row = openblas_row(facts);
  EXPECT_EQ(row.status, Status::kWarning);
  EXPECT_EQ(row.value, "LibTorch multiplies with /lib/libblas.so.3 instead: 2.0 GFLOP/s on one core");
  EXPECT_THAT(row.mend, HasSubstr("apt-get install libopenblas0-pthread"));
}

TEST(OpenBlasRow, HasNoTiersOnOtherCpus) {
  Facts facts = healthy();
  facts.cpu = {};
  facts.blas.found = facts.blas.mended = openblas_with("neoversen1");
  facts.environment["OPENBLAS_CORETYPE"] = "neoversen1";
  const Row row = openblas_row(facts);
  EXPECT_EQ(row.status, Status::kOk);
  EXPECT_THAT(row.value, testing::StartsWith("neoversen1: 158.0 GFLOP/s"));
}

TEST(LibTorchRow, IsAFaultWithoutLibTorch) {
  Facts facts = healthy();
  facts.blas.torch = facts.blas.mended_torch = {.missing = true};
  EXPECT_EQ(libtorch_row(facts).status, Status::kFault);
  EXPECT_THAT(libtorch_row(facts).mend, HasSubstr("cmake --build"));
  facts.blas.torch = facts.blas.mended_torch = {.problem = "exit code 127: cannot open shared object"};
  EXPECT_THAT(libtorch_row(facts).value, HasSubstr("cannot open shared object"));
  EXPECT_THAT(libtorch_row(facts).mend, HasSubstr("apt-get"));
  facts.environment["LD_LIBRARY_PATH"] = "/somewhere";
  EXPECT_EQ(libtorch_row(facts).mend, "unset LD_LIBRARY_PATH");
}

TEST(LibTorchRow, WarnsOfAnUnusedCpu) {
  Facts facts = healthy();
  facts.environment["ATEN_CPU_CAPABILITY"] = "default";
  facts.blas.torch.cpu_capability = "NO AVX";
  EXPECT_EQ(libtorch_row(facts).status, Status::kWarning);
  EXPECT_EQ(libtorch_row(facts).mend, "unset ATEN_CPU_CAPABILITY");
}

TEST(ThreadsRow, WarnsWhenLibTorchCountsTheCoresWrongly) {
  Facts facts = healthy();
  facts.blas.torch.threads = 1;
  EXPECT_EQ(threads_row(facts).status, Status::kWarning);
  EXPECT_EQ(threads_row(facts).value,
            "OMP_NUM_THREADS is not set: LibTorch takes 1, OpenBLAS 4; there are 4 cores");
  EXPECT_EQ(threads_row(facts).mend, "export OMP_NUM_THREADS=4 OPENBLAS_NUM_THREADS=4");
  facts.environment["OMP_NUM_THREADS"] = "1";
  EXPECT_EQ(threads_row(facts).status, Status::kOk) << "one thread by the user's own wish";
}

TEST(ThreadsRow, WarnsOfMoreThreadsThanCores) {
  Facts facts = healthy();
  facts.environment["OMP_NUM_THREADS"] = "8";
  facts.blas.torch.threads = 8;
  EXPECT_EQ(threads_row(facts).status, Status::kWarning);
  facts.cores = {{{0, 4}}, {{1, 5}}, {{2, 6}}, {{3, 7}}};
  EXPECT_EQ(threads_row(facts).status, Status::kOk) << "one for every hardware thread";
}

TEST(ThreadsRow, GoesByTheControlGroup) {
  Facts facts = healthy();
  facts.cgroup.cpus = 2.5;
  EXPECT_EQ(threads_row(facts).status, Status::kWarning);
  EXPECT_THAT(threads_row(facts).value, HasSubstr("the control group grants 2 cores"));
  EXPECT_EQ(threads_row(facts).mend, "export OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2");
}

TEST(ThreadsRow, RefusesWhatIsNoNumber) {
  Facts facts = healthy();
  facts.environment["OPENBLAS_NUM_THREADS"] = "4x";
  EXPECT_EQ(threads_row(facts).status, Status::kWarning);
  EXPECT_EQ(threads_row(facts).value, "OPENBLAS_NUM_THREADS: '4x' is not a whole number");
}

TEST(CoresRow, TellsHardwareThreadsAndAffinity) {
  Facts facts = healthy();
  facts.cores = {{{0, 2}}, {{1}}};
  EXPECT_EQ(cores_row(facts).value, "2 cores with 3 hardware threads, A Xeon; affinity allows 3 of 4 CPUs");
}

TEST(MemoryRow, GoesByTheTighterOfMachineAndControlGroup) {
  Facts facts = healthy();
  facts.cgroup.memory_bytes = kGibibyte / 2;
  EXPECT_EQ(memory_row(facts).status, Status::kWarning);
  facts.cgroup.memory_left_bytes = kGibibyte / 8;
  EXPECT_EQ(memory_row(facts).status, Status::kFault) << "the rest is taken";
  facts.cgroup.memory_left_bytes.reset();
  facts.cgroup.memory_bytes = kGibibyte / 8;
  EXPECT_EQ(memory_row(facts).status, Status::kFault);
  EXPECT_EQ(cgroup_row(facts).value, "CPUs unlimited, memory 128 MiB");
}

TEST(LimitRows, WarnBelowWhatTrainingNeeds) {
  Facts facts = healthy();
  facts.limits.locked_memory_bytes = 64 << 10;
  facts.limits.open_files = 256;
  EXPECT_EQ(locked_memory_row(facts).status, Status::kWarning);
  EXPECT_EQ(open_files_row(facts).mend, "ulimit -n 4096");
  facts.limits.open_files_hard = 256;
  EXPECT_THAT(open_files_row(facts).mend, HasSubstr("limits.conf"));
  facts.limits = {};
  EXPECT_EQ(locked_memory_row(facts).value, "locked memory: unlimited");
  EXPECT_EQ(open_files_row(facts).status, Status::kOk);
  facts.dev_shm.free_bytes = 64 << 20;  // what docker gives
  EXPECT_EQ(dev_shm_row(facts).status, Status::kWarning);
}

TEST(LimitRows, TooSmallAnAddressSpaceIsAFaultAndWhatLibTorchIsMendedWith) {
  Facts facts = healthy();
  facts.limits.address_space_bytes = kGibibyte;
  facts.blas.torch = facts.blas.mended_torch = {.problem = "too small an address space (ulimit -v)"};
  EXPECT_EQ(address_space_row(facts).status, Status::kFault);
  EXPECT_EQ(address_space_row(facts).value, "address space: 1 GiB; a program with LibTorch needs 2 GiB");
  EXPECT_THAT(address_space_row(facts).mend, testing::StartsWith("ulimit -v unlimited"));
  facts.blas.found = {};
  EXPECT_EQ(libtorch_row(facts).mend, address_space_row(facts).mend);
  EXPECT_EQ(openblas_row(facts).mend, address_space_row(facts).mend) << "no package is to blame";
  facts.limits.address_space_bytes = 65 * kGibibyte;
  EXPECT_EQ(address_space_row(facts).status, Status::kWarning);
  EXPECT_EQ(address_space_row(facts).value,
            "address space: 65 GiB; with a rank on each core, each can share 8.1 GiB");
  facts.limits.address_space_bytes = 66 * kGibibyte;
  EXPECT_EQ(address_space_row(facts).status, Status::kOk);
}

TEST(Rows, TellProgramsNumbersAndNamesApartFromProse) {
  Facts facts = healthy();
  facts.cgroup = {.cpus = 2.5, .memory_bytes = kGibibyte};
  facts.slurm = "/usr/bin/scontrol";
  EXPECT_EQ(cores_row(facts).names.at("model"), "A Xeon");
  EXPECT_EQ(cgroup_row(facts).numbers.at("cpus"), 2.5);
  EXPECT_EQ(cgroup_row(facts).numbers.at("memory_bytes"), kGibibyte);
  EXPECT_EQ(caches_row(facts).numbers.at("l3_bytes"), 32 << 20);
  EXPECT_EQ(libtorch_row(facts).names.at("version"), "2.6.0");
  EXPECT_EQ(openblas_row(facts).names.at("right_core"), "SkylakeX");
  EXPECT_EQ(open_files_row(facts).numbers.at("limit"), 1024);
  EXPECT_FALSE(address_space_row(facts).numbers.contains("limit")) << "unlimited";
  EXPECT_EQ(dev_shm_row(facts).numbers.at("free_bytes"), kGibibyte);
  EXPECT_EQ(slurm_row(facts).names.at("scontrol"), "/usr/bin/scontrol");
  EXPECT_EQ(ports_row(facts).numbers.at("first_local_port"), 32768);
}

TEST(PortsRow, NamesTheUsualPortWhenItIsTaken) {
  Facts facts = healthy();
  facts.network.usual_port_problem = "in use";
  EXPECT_EQ(ports_row(facts).status, Status::kWarning);
  EXPECT_THAT(ports_row(facts).mend, HasSubstr("--master-port"));
}

TEST(Doctor, PutsSudoBeforeWhatOnlyRootMayDo) {
  Facts facts = healthy();
  facts.root = false;
  facts.dev_shm = {};
  EXPECT_EQ(dev_shm_row(facts).mend, "sudo mkdir -p /dev/shm && sudo mount -t tmpfs tmpfs /dev/shm");
  facts.blas.found = {};
  EXPECT_THAT(openblas_row(facts).mend,
              testing::StartsWith("sudo apt-get install libopenblas0-pthread && sudo "));
}

TEST(EngineRows, SharedMemoryNeedsMemfd) {
  Facts facts = healthy();
  facts.kernel.memfd_problem = "Operation not permitted";
  const auto rows = engine_rows(facts);
  const auto shm =
      std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.name == "engine shm"; });
  ASSERT_NE(shm, rows.end());
  EXPECT_EQ(shm->status, Status::kFault);
  EXPECT_THAT(shm->value, HasSubstr("memfd_create: Operation not permitted"));
}

TEST(BytesText, PicksAUnit) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(64 << 20), "64 MiB");
  EXPECT_EQ(bytes_text(kGibibyte * 2048), "2 TiB");
}

TEST(CopyRate, IsMeasuredWithLittleMemoryToo) {
  const CopyRate rate = measure_copy_rate(launch::allowed_cores(), 0, 0);
  EXPECT_GT(rate.one_core, 0);
  EXPECT_GT(rate.all_cores, 0);
}

TEST(TorchProbe, ReadsWhatTheProbePrints) {
  const TorchProbe probe = parse_torch_probe(
      R"({"libtorch": "1.13.0", "cpu_capability": "AVX2", "threads": {"torch": 2, "openblas": null},)"
      R"( "blas": {"library": "/lib/libblas.so.3", "core": null, "config": null}, "gemm": {"gflops": 12.5}})");
  EXPECT_TRUE(probe.ok);
  EXPECT_EQ(probe.version, "1.13.0");
  EXPECT_EQ(probe.blas_core, "");
  EXPECT_EQ(probe.gflops, 12.5);
  EXPECT_THROW(parse_torch_probe("{}"), Error);
  EXPECT_THROW(parse_torch_probe("nonsense"), Error);
}

}  // namespace
}  // namespace lockstep::cli::doctor
