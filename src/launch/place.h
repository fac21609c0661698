#pragma once

#include <optional>
#include <string_view>

#include "launch/variables.h"

namespace lockstep::launch {

/// Where a process stands among the processes that one launcher started.
struct Place {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::optional<int> node_rank = {};
  std::optional<int> nodes = {};
};

/// The variables that tell a Place; an empty name if the launcher does not tell.
struct PlaceNames {
  std::string_view rank = {};
  std::string_view world_size = {};
  std::string_view local_rank = {};
  std::string_view local_world_size = {};
  std::string_view node_rank = {};
  std::string_view nodes = {};
};

inline constexpr PlaceNames kTorchrunNames{"RANK",       "WORLD_SIZE",      "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                           "GROUP_RANK", "GROUP_WORLD_SIZE"};
inline constexpr PlaceNames kHandNames{"RANK",      "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                       "NODE_RANK", "NNODES"};
inline constexpr PlaceNames kMpirunNames{"OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_LOCAL_RANK",
                                         "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "",
                                         "OMPI_MCA_orte_num_nodes"};
inline constexpr PlaceNames kSrunNames{"SLURM_PROCID",  "SLURM_STEP_NUM_TASKS",
                                       "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE",
                                       "SLURM_NODEID",  "SLURM_STEP_NUM_NODES"};

/// Reads rank, size and local ones, which must be there, and the node's, which need not.
Place read_place(const Variables& variables, const PlaceNames& names);

/// Fills in what follows: all ranks on one node make it node 0 of 1. Refuses numbers of nodes and local ranks
/// that no job can have.
Place completed(Place place, const Variables& variables, const PlaceNames& names);

/// Refuses any variable of `others` that is set and differs from `place`, which was read from `names`. All of
/// `others` are numbers.
void require_agreement(const Place& place, const PlaceNames& names, const PlaceNames& others,
                       const Variables& variables);

}  // namespace lockstep::launch
