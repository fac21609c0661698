#include "comms/run_processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "launch/unique_fd.h"

namespace lockstep::test {

namespace {

constexpr int kPatienceSeconds = 120;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Moves to the rank's host, and says so.
void settle(const Hosts& hosts, Identity& identity) {
  const int ranks_per_host = identity.world_size / hosts.count();
  if (ranks_per_host * hosts.count() != identity.world_size)
    throw std::invalid_argument("the ranks cannot be spread over the hosts in equal blocks");
  const int host = identity.rank / ranks_per_host;
  identity.local_rank = identity.rank % ranks_per_host;
  identity.local_world_size = ranks_per_host;
  identity.node_rank = host;
  identity.nodes = hosts.count();
  identity.master_addr = Hosts::address(0);
  identity.master_port = 29500;  // the hosts' network is their own
  setenv("LOCKSTEP_TOKEN", "a secret of this test", 1);
  unsetenv("LOCKSTEP_PORT");
  hosts.enter(host);
}

std::string be_rank(const Identity& given, const ProcessesOptions& options,
                    const std::function<std::string(Communicator&)>& act) {
  Identity identity = given;
  if (options.hosts != nullptr) settle(*options.hosts, identity);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // again: entering a user namespace takes it back
  if (options.before) options.before(identity);
  Communicator comm = init_distributed(identity, {.engine = options.engine, .timeout = options.timeout});
  return act(comm);
}

/// Reports what `act` returns or throws.
[[noreturn]] void be_process(int report, const std::function<std::string()>& act) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string text;
  int code = 0;
  try {
    text = act();
  } catch (const std::exception& error) {
    text = error.what();
    code = 3;
  }
  for (size_t at = 0; at < text.size();) {
    const ssize_t written = write(report, text.data() + at, text.size() - at);
    if (written <= 0) break;
    at += static_cast<size_t>(written);
  }
  _exit(code);
}

}  // namespace

std::vector<Ended> run_processes(int world, const std::function<std::string(Communicator&)>& act,
                                 const ProcessesOptions& options) {
  static std::atomic<int> jobs = 0;
  const std::string job = fmt::format("test {} {}", getpid(), ++jobs);
  const auto be = [&](int rank) {
    return be_rank({.rank = rank,
                    .world_size = world,
                    .local_rank = rank,
                    .local_world_size = world,
                    .job_id = job,
                    .launcher = Launcher::kEnvironment},
                   options, act);
  };
  return run_bare_processes(world, be, options.meanwhile);
}

std::vector<Ended> run_bare_processes(int count, const std::function<std::string(int)>& act,
                                      const std::function<void(const std::vector<int>& pids)>& meanwhile) {
  struct Rank {
    pid_t pid = -1;
    launch::UniqueFd report;
    Ended ended;
    bool open = true;
  };
  std::vector<Rank> ranks(static_cast<size_t>(count));
  std::vector<int> pids;
  const double start = now();
  for (int rank = 0; rank < count; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    launch::UniqueFd writing(ends[1]);
    Rank& one = ranks[static_cast<size_t>(rank)];
    one.report.reset(ends[0]);
    one.pid = fork();
    if (one.pid == 0) {
      for (auto& other : ranks) other.report.reset();
      be_process(writing.get(), [&] { return act(rank); });
    }
    pids.push_back(one.pid);
  }
  try {
    if (meanwhile) meanwhile(pids);
  } catch (...) {
    for (const int pid : pids) kill(pid, SIGKILL);
    for (const int pid : pids) waitpid(pid, nullptr, 0);
    throw;
  }

  size_t open = ranks.size();
  bool killed = false;
  while (open > 0) {
    std::vector<pollfd> waits;
    for (const auto& rank : ranks)
      waits.push_back({.fd = rank.open ? rank.report.get() : -1, .events = POLLIN, .revents = 0});
    poll(waits.data(), waits.size(), 1000);
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (!ranks[i].open || waits[i].revents == 0) continue;
      char bytes[4096];
      const ssize_t got = read(ranks[i].report.get(), bytes, sizeof(bytes));
      if (got > 0) {
        ranks[i].ended.text.append(bytes, static_cast<size_t>(got));
        continue;
      }
      ranks[i].open = false;
      ranks[i].ended.seconds = now() - start;
      --open;
    }
    if (now() - start > kPatienceSeconds && !killed) {
      for (const auto& rank : ranks) kill(rank.pid, SIGKILL);
      killed = true;
    }
  }
  std::vector<Ended> ended;
  for (auto& rank : ranks) {
    waitpid(rank.pid, &rank.ended.status, 0);
    // Not "": that is what a rank says that ended well.
    if (killed) {
      rank.ended.text += fmt::format("(killed: the ranks did not end within {} s)", kPatienceSeconds);
    } else if (WIFSIGNALED(rank.ended.status)) {
      rank.ended.text += fmt::format("(ended by {})", strsignal(WTERMSIG(rank.ended.status)));
    }
    ended.push_back(rank.ended);
  }
  return ended;
}

}  // namespace lockstep::test
