#pragma once

#include "cli/verb.h"

namespace lockstep::cli {

Action define_bench_blas(CLI::App& app);
Action define_bench_launcher(CLI::App& app);
Action define_completion(CLI::App& app);
Action define_doctor(CLI::App& app);
Action define_probe(CLI::App& app);
Action define_run(CLI::App& app);
Action define_test(CLI::App& app);
Action define_train(CLI::App& app);

}  // namespace lockstep::cli
