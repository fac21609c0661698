#pragma once

#include <string>
#include <vector>

#include "cli/doctor/facts.h"
#include "cli/doctor/row.h"

namespace lockstep::cli::doctor {

// Each row is a function of the facts. A warning costs speed or one engine; with a fault training does not
// work here.

Row cores_row(const Facts& facts);
Row memory_row(const Facts& facts);
Row cgroup_row(const Facts& facts);
Row caches_row(const Facts& facts);
Row copy_row(const Facts& facts);

Row libtorch_row(const Facts& facts);
Row openblas_row(const Facts& facts);
Row threads_row(const Facts& facts);

/// One for each engine.
std::vector<Row> engine_rows(const Facts& facts);

Row address_space_row(const Facts& facts);
Row locked_memory_row(const Facts& facts);
Row open_files_row(const Facts& facts);
Row dev_shm_row(const Facts& facts);
Row launcher_row(const Facts& facts);
Row slurm_row(const Facts& facts);
Row ports_row(const Facts& facts);

/// All of them, in the order of the table.
std::vector<Row> all_rows(const Facts& facts);

/// What mends a library that does not load: its package again, or a larger address space.
std::string mend_library(const Facts& facts, const std::string& command);

/// How many threads keep this process's share of the machine busy.
int fitting_threads(const Facts& facts);

/// What a program that `lockstep run` does not start should find in its environment, as a shell command.
std::string export_command(const Facts& facts);

}  // namespace lockstep::cli::doctor
