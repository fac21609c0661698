#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/copy_rate.h"
#include "cli/torch_probe.h"
#include "launch/blas.h"
#include "launch/cgroup.h"
#include "launch/cores.h"
#include "launch/cpu.h"
#include "launch/environment.h"
#include "launch/kernel.h"
#include "launch/memory.h"

namespace lockstep::cli::doctor {

/// OpenBLAS and LibTorch as they are in the user's shell, and as they would be with the right kernels.
struct BlasFacts {
  launch::OpenBlas found;    ///< In the user's environment.
  launch::BlasChoice right;  ///< What OPENBLAS_CORETYPE should be; "" for unset.
  launch::OpenBlas mended;   ///< With that setting.
  TorchProbe torch;          ///< In the user's environment.
  TorchProbe mended_torch;   ///< With that setting.

  /// LibTorch without a setting that only OpenBLAS suffers from.
  const TorchProbe& working_torch() const { return torch.ok ? torch : mended_torch; }
};

/// What it takes to use an engine here.
struct EngineFacts {
  std::string gloo_problem;    ///< Why its library does not load; "" if it does.
  std::string mpirun_problem;  ///< Why a program does not start under mpirun; "" if it does.
};

struct NetworkFacts {
  std::string loopback_problem;    ///< Why no port can be bound on this host; "" if one can.
  std::string usual_port_problem;  ///< Why port 29500, which torchrun takes, is not free; "" if it is.
  int first_local_port = 0;        ///< The range of ports for outgoing connections.
  int last_local_port = 0;
};

/// Everything that the table is made of. Rows are functions of it, so that tests can make up any machine.
struct Facts {
  launch::Environment environment;
  bool root = true;  ///< Commands that only root may give need no sudo.
  launch::CpuFeatures cpu;
  std::vector<launch::Core> cores;  ///< That this process may use.
  int machine_cpus = 0;             ///< Hardware threads of the machine, allowed or not.
  launch::CgroupLimits cgroup;
  launch::Memory memory;
  std::vector<launch::Cache> caches;
  BlasFacts blas;
  CopyRate copy;
  launch::KernelFeatures kernel;
  launch::Limits limits;
  launch::MemoryDisk dev_shm;
  EngineFacts engines;
  NetworkFacts network;
  std::string slurm;  ///< The path of scontrol; "" if there is none.

  /// What LibTorch's libraries map, whatever of it becomes memory; with less, OpenBLAS may wait for ever.
  static constexpr uint64_t kTorchAddresses = uint64_t{2} << 30;
  bool has_addresses(uint64_t bytes) const { return limits.address_space_bytes.value_or(bytes) >= bytes; }
  bool has_addresses_for_torch() const { return has_addresses(kTorchAddresses); }
  /// Bytes that programs could still take, by the machine and the control group.
  uint64_t usable_memory() const {
    return std::min({memory.available_bytes, cgroup.memory_bytes.value_or(memory.available_bytes),
                     cgroup.memory_left_bytes.value_or(memory.available_bytes)});
  }
  /// A variable of the user's environment; "" if it is not set.
  std::string variable(const std::string& name) const {
    const auto found = environment.find(name);
    return found == environment.end() ? "" : found->second;
  }
  std::string sudo() const { return root ? "" : "sudo "; }
  /// Hardware threads that this process may use.
  int cpus() const {
    size_t count = 0;
    for (const auto& core : cores) count += core.cpus.size();
    return static_cast<int>(count);
  }
};

/// Looks and measures: two to four seconds. Measures first, while nothing else of ours runs.
Facts gather();

}  // namespace lockstep::cli::doctor
