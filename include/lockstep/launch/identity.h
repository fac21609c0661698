#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// Environment variables by name. Functions take one instead of calling getenv, so that tests can give any.
using Environment = std::map<std::string, std::string>;

/// Who started this process as a rank.
enum class Launcher {
  kAlone,        ///< nobody: rank 0 of 1
  kLockstep,     ///< `lockstep run`
  kTorchrun,     ///< torchrun, also inside one srun or mpirun task per node
  kMpirun,       ///< Open MPI's mpirun, also inside a SLURM allocation
  kSrun,         ///< srun, one task per rank
  kEnvironment,  ///< RANK and WORLD_SIZE set by hand, as for torch.distributed's env://
};

/// Who this process is in its job. Always 0 <= rank < world_size and
/// 0 <= local_rank < local_world_size <= world_size; if known, node_rank < nodes <= world_size.
struct Identity {
  int rank = 0;              ///< among all processes of the job
  int world_size = 1;        ///< processes of the job
  int local_rank = 0;        ///< among the processes on this node
  int local_world_size = 1;  ///< processes on this node

  /// This node among the job's. Empty if the launcher does not tell: mpirun on several nodes
  /// (OMPI_COMM_WORLD_NODE_RANK is the rank *on* the node), and variables set by hand without NODE_RANK.
  /// Never guessed from rank / local_world_size, which is wrong for mpirun --map-by node and for uneven
  /// nodes.
  std::optional<int> node_rank = 0;

  /// Nodes of the job. Empty if the launcher does not tell (mpirun 5, variables set by hand without NNODES)
  /// and not all ranks are on this node.
  std::optional<int> nodes = 1;

  std::string master_addr = {};  ///< where rank 0 can be reached; empty if not told (alone, mpirun)
  int master_port = 0;           ///< 1..65535; 0 if not told
  int restart_count = 0;    ///< how often the launcher, or SLURM by requeueing, has started the job again
  std::string job_id = {};  ///< the same on all ranks of a job; empty if there is none (alone, set by hand)
  Launcher launcher = Launcher::kAlone;

  bool operator==(const Identity&) const = default;
};

/// Tells from `environment` who the process is. Throws UsageError, naming variable and value, if variables
/// are missing, malformed or contradict each other: a wrong guess would make N worlds of one.
///
/// The innermost launcher counts, in this order, and what others set beside it must not contradict it:
/// 1. LOCKSTEP_JOB_ID: `lockstep run`. It removes outer launchers' task variables, so those that are there
/// must
///    agree with its own.
/// 2. TORCHELASTIC_RUN_ID: torchrun. Task variables of an outer srun or mpirun must agree if that started
///    several tasks on this node.
/// 3. OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE: mpirun. SLURM's variables then describe mpirun's
/// own
///    daemons and are not read.
/// 4. SLURM_STEP_ID: srun. The master is the first host of SLURM_STEP_NODELIST unless MASTER_ADDR is set, the
/// port
///    20000 + (31 * job + step) mod 10000 unless MASTER_PORT is set. A batch script that does not use srun is
///    alone.
/// 5. RANK and WORLD_SIZE, set by hand, with MASTER_ADDR and MASTER_PORT if WORLD_SIZE > 1. Without
/// LOCAL_RANK and
///    LOCAL_WORLD_SIZE the process counts as local rank 0 of 1, as scripts for env:// assume.
///    Beside mpirun or srun, RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and NODE_RANK may be set, each to
///    the same value as theirs.
/// 6. Nothing: alone. MASTER_ADDR, MASTER_PORT, NNODES and NODE_RANK alone do not make a rank.
Identity identify(const Environment& environment);

/// identify() of this process's own environment.
Identity identify();

/// "alone", "lockstep run", "torchrun", "mpirun", "srun" or "environment".
std::string_view to_string(Launcher launcher);

/// One line for people, such as
/// "rank 3 of 4 (local rank 1 of 2, node 1 of 2), master tux1:21302, restart 0, job 42.0, started by srun".
std::string to_string(const Identity& identity);

}  // namespace lockstep
