#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comms/group.h"
#include "lockstep/comms/communicator.h"
#include "lockstep/trace/writer.h"
#include "transport/threads.h"

namespace lockstep::test {

struct RanksOptions {
  transport::ThreadsOptions threads = {};
  std::chrono::milliseconds timeout{60'000};
  int ranks_per_node = 1;
};

/// Runs `act` on every rank of a world of threads; returns what each threw, "" if nothing.
inline std::vector<std::string> run_ranks(int world, const std::function<void(Communicator&)>& act,
                                          const RanksOptions& options = {}) {
  auto jobs = transport::make_thread_jobs(world, options.threads);
  std::vector<int> everybody;
  for (int rank = 0; rank < world; ++rank) everybody.push_back(rank);
  std::vector<std::string> thrown(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      trace::set_rank(rank);
      try {
        const std::shared_ptr<transport::Job> job = std::move(jobs[static_cast<size_t>(rank)]);
        Communicator comm(transport::make_owned<comms::Group>(job, "world", everybody, options.ranks_per_node,
                                                              options.timeout));
        act(comm);
        job->control().leave(transport::Control::Clock::now() + options.timeout);
      } catch (const std::exception& error) {
        thrown[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return thrown;
}

}  // namespace lockstep::test
