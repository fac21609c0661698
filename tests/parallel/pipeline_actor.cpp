// A rank of the tests of pipelines under mpirun: `pipeline_actor WHAT`. Says what is wrong, and then ends
// with 1.
#include <fmt/format.h>
#include <signal.h>

#include "lockstep/comms/init.h"
#include "parallel/pipeline_contract.h"
#include "parallel/pipeline_mishap.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    auto comm = init_distributed();
    if (what == "contract") {
      const std::string problems = test::check_pipeline(comm);
      fmt::print(stderr, "{}", problems);
      return problems.empty() ? 0 : 1;
    }
    if (what == "throw") {
      test::train_into(comm, "1f1b", {.act = [] { throw std::runtime_error("this stage is broken"); }});
    } else if (what == "die") {
      test::train_into(comm, "1f1b", {.act = [] { raise(SIGKILL); }});
    }
    fmt::print(stderr, "nothing happened\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  return 1;
}
