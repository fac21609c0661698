#include "cli/doctor/rows.h"

namespace lockstep::cli::doctor {

std::vector<Row> all_rows(const Facts& facts) {
  std::vector<Row> rows;
  for (auto* make :
       {cores_row, memory_row, cgroup_row, caches_row, copy_row, libtorch_row, openblas_row, threads_row}) {
    rows.push_back(make(facts));
  }
  for (auto& row : engine_rows(facts)) rows.push_back(std::move(row));
  for (auto* make : {launcher_row, address_space_row, locked_memory_row, open_files_row, dev_shm_row,
                     slurm_row, ports_row}) {
    rows.push_back(make(facts));
  }
  return rows;
}

}  // namespace lockstep::cli::doctor
