#include "lockstep/comms/init.h"

#include <fmt/format.h>

#include <cstdlib>

#include "comms/group.h"
#include "lockstep/error.h"
#include "lockstep/trace/session.h"
#include "transport/engines.h"
#include "transport/gloo.h"
#include "transport/mpi.h"
#include "transport/process_arena.h"
#include "transport/shm.h"

namespace lockstep {

namespace {

constexpr auto kGoodbye = std::chrono::seconds(10);

/// Says goodbye when the last group of the job is gone.
std::shared_ptr<transport::Job> leaving_at_the_end(std::unique_ptr<transport::Job> job) {
  return {job.release(), [](transport::Job* done) {
            // After a failure there is nobody to wait for.
            if (!done->control().has_failed()) {
              done->flush();
              done->control().leave(transport::Control::Clock::now() + kGoodbye);
            }
            delete done;
          }};
}

std::string choose_engine(const Identity& identity, const InitOptions& options) {
  std::string engine = options.engine;
  const char* const wanted = std::getenv("LOCKSTEP_ENGINE");
  if (!engine.empty()) {
    transport::require_engine(engine, "InitOptions::engine");
  } else if (wanted != nullptr && *wanted != '\0') {
    engine = wanted;
    transport::require_engine(engine, "LOCKSTEP_ENGINE");
  } else {
    const bool one_host = identity.local_world_size == identity.world_size;
    const bool by_mpi = identity.launcher == Launcher::kMpirun && transport::is_built("mpi");
    engine = one_host ? "shm" : by_mpi ? "mpi" : "gloo";
  }
  return engine;
}

std::unique_ptr<transport::Job> connect(const std::string& engine, const Identity& identity,
                                        transport::Control::Clock::time_point deadline) {
  if (engine == "shm") return transport::connect_shm(identity, deadline);
  if (engine == "gloo") return transport::connect_gloo(identity, deadline);
  if (engine == "mpi") return transport::connect_mpi(identity, deadline);
  throw UsageError(fmt::format(
      "init_distributed: engine {} is for the threads of one process; hint: use shm, gloo or mpi", engine));
}

void (*use_allocator)(bool) = nullptr;

/// Whether tensors shall lie in shared memory, as the program and its user want it.
bool wants_shared_allocator(const InitOptions& options) {
  const char* const wanted = std::getenv("LOCKSTEP_SHARED_ALLOCATOR");
  if (wanted == nullptr || *wanted == '\0' || std::string_view(wanted) == "1")
    return options.shared_allocator;
  if (std::string_view(wanted) == "0") return false;
  throw UsageError(fmt::format("LOCKSTEP_SHARED_ALLOCATOR is '{}'; hint: set it to 0 or 1", wanted));
}

}  // namespace

bool comms::call_on_shared_memory(void (*use)(bool)) {
  use_allocator = use;
  return true;
}

Communicator init_distributed(const InitOptions& options) {
  return init_distributed(identify(), options);
}

Communicator init_distributed(const Identity& identity, const InitOptions& options) {
  if (options.timeout.count() <= 0) {
    throw UsageError(
        fmt::format("InitOptions::timeout is {} ms; hint: give a time above 0", options.timeout.count()));
  }
  const auto timeout = transport::bounded(options.timeout);
  const std::string engine = choose_engine(identity, options);
  const bool shares_tensors = engine == "shm" && wants_shared_allocator(options);
  const auto deadline = transport::Control::Clock::now() + timeout;
  const auto job = leaving_at_the_end(connect(engine, identity, deadline));
  trace::start_from_environment(identity.rank);
  if (shares_tensors && use_allocator != nullptr) use_allocator(true);
  std::vector<int> everybody;
  for (int rank = 0; rank < identity.world_size; ++rank) everybody.push_back(rank);
  return Communicator(
      transport::make_owned<comms::Group>(job, "world", everybody, identity.local_world_size, timeout));
}

}  // namespace lockstep
