// A rank whose part is given by its arguments; tests start it under `lockstep run`.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <thread>

#include "comms/contract.h"
#include "lockstep/comms/init.h"
#include "lockstep/error.h"

namespace {

using lockstep::Communicator;

int check_all(Communicator& comm) {
  const std::string problems = lockstep::test::check_all(comm);
  std::cout << problems;
  return problems.empty() ? 0 : 1;
}

int check_forked_child(Communicator& comm) {
  const auto problems = lockstep::test::check_forked_child(comm);
  for (const auto& problem : problems) std::cout << problem << "\n";
  return problems.empty() ? 0 : 1;
}

/// What a forked child gets that initialises again.
void init_in_forked_child() {
  const pid_t child = fork();
  if (child != 0) {
    waitpid(child, nullptr, 0);
    return;
  }
  alarm(60);
  try {
    lockstep::init_distributed();
    std::cerr << "nothing was thrown\n";
  } catch (const lockstep::UsageError& error) {
    std::cerr << error.what() << "\n";
  }
  _exit(0);
}

void all_reduce_forever(Communicator& comm, int64_t count) {
  const auto memory = comm.allocate(static_cast<size_t>(count) * sizeof(float));
  auto* const data = static_cast<float*>(memory.get());
  std::memset(data, 0, static_cast<size_t>(count) * sizeof(float));
  for (;;) comm.all_reduce({data, count, lockstep::DataType::kFloat32});
}

/// The last rank does `what` while the others are in calls that need it.
int act(Communicator& comm, const std::string& what, int64_t count) {
  const bool last = comm.rank() == comm.world_size() - 1;
  if (what == "die-before") {
    if (last) raise(SIGKILL);
    comm.barrier();
  } else if (what == "die-at-entry") {
    std::vector<float> data(static_cast<size_t>(count));
    for (int i = 0; i < 100; ++i) comm.all_reduce(data);
    if (last) raise(SIGKILL);
    comm.all_reduce(data);
  } else if (what == "die-within" || what == "stop-within" || what == "pause-within") {
    if (last && fork() == 0) {  // whatever the rank is doing at that moment
      usleep(50'000);
      kill(getppid(), what == "die-within" ? SIGKILL : SIGSTOP);
      usleep(600'000);
      if (what == "pause-within") kill(getppid(), SIGCONT);
      _exit(0);
    }
    if (what != "pause-within") all_reduce_forever(comm, count);
    std::vector<float> data(static_cast<size_t>(count), 1.0F);
    const auto over = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    for (float goes_on = 1; goes_on > 0;) {
      comm.all_reduce(data, lockstep::ReduceOp::kMean);
      goes_on = std::chrono::steady_clock::now() < over ? 1 : 0;
      comm.broadcast(std::span(&goes_on, 1));
    }
    if (data[0] != 1) return 1;
  } else if (what == "slow") {  // messages and a collective that take longer than their timeout
    const lockstep::CallOptions hasty = {.timeout = std::chrono::seconds(4)};
    std::vector<float> out(static_cast<size_t>(count), 1.0F), in(out.size());
    const auto sent = comm.isend(out, comm.get_next_rank(), 0, hasty);
    comm.recv(in, comm.get_prev_rank(), 0, hasty);
    sent.wait();
    comm.all_reduce(out, lockstep::ReduceOp::kMean, hasty);
    if (in != out) return 1;
  } else if (what == "engine") {
    comm.barrier();
    if (last) std::cout << comm.engine() << "\n";
  } else if (what == "leave") {
    if (!last) comm.barrier();
  } else if (what == "abort") {
    std::thread([comm, last]() mutable {
      if (last) comm.abort("enough");
    }).join();
    comm.barrier();
  } else if (what == "other-count") {
    std::vector<float> data(last ? 1000 : 999);
    comm.all_reduce(data);
  } else if (what == "other-type") {
    std::vector<float> floats(1000);
    std::vector<int32_t> integers(1000);
    comm.all_reduce(last ? lockstep::Buffer(floats) : lockstep::Buffer(integers));
  } else if (what == "other-operation") {
    std::vector<float> data(1000);
    comm.all_reduce(data, last ? lockstep::ReduceOp::kMax : lockstep::ReduceOp::kSum);
  } else if (what == "other-collective") {
    std::vector<float> data(1000);
    last ? comm.barrier() : comm.all_reduce(data);
    comm.barrier();
  } else if (what == "other-root") {  // both only send
    std::vector<float> data(1000);
    comm.broadcast(data, comm.rank());
    comm.barrier();
  } else if (what == "forked-child") {
    return check_forked_child(comm);
  } else if (what == "init-in-child") {
    init_in_forked_child();
    comm.barrier();
  } else if (what == "fork") {
    std::vector<float> data(static_cast<size_t>(count), 1.0F);
    for (int i = 0; i < 50; ++i) {
      if (i % 10 == 0 && fork() == 0) return 0;  // from main(): the child must harm nobody
      comm.all_reduce(data);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "contract";
  const int64_t count = argc > 2 ? std::stoll(argv[2]) : 1000;
  const int timeout_ms = argc > 3 ? std::stoi(argv[3]) : 60'000;
  try {
    Communicator comm = lockstep::init_distributed({.timeout = std::chrono::milliseconds(timeout_ms)});
    return what == "contract" ? check_all(comm) : act(comm, what, count);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n" << std::flush;
    return 3;
  }
}
