// Messages, queued work and groups of a group.
#include "comms/contract.h"

#include <fmt/format.h>

#include "comms/contract_buffers.h"

namespace lockstep::test {

Problems check_messages(Communicator& comm) {
  Problems problems;
  const int world = comm.world_size();
  const int rank = comm.rank();
  if (world == 1) return problems;
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{300'000}}) {
    auto out = values(rank, count);
    std::vector<float> in(out.size());
    // Everybody sends before it receives: only works if both go on at once.
    const Work sent = comm.isend(out, comm.get_next_rank(), 5);
    const Work received = comm.irecv(in, comm.get_prev_rank(), 5);
    received.wait();
    sent.wait();
    expect(problems, fmt::format("round the ring, {}", count), in,
           [&](int64_t i) { return value(comm.get_prev_rank(), i); });
    if (rank == 0) {
      comm.send(out, 1, 6);
    } else if (rank == 1) {
      comm.recv(in, 0, 6);
      expect(problems, "blocking", in, [&](int64_t i) { return value(0, i); });
    }
  }
  // A message is sent while its sender does something else: here, waits for a word over the control plane.
  for (const Place place : {Place::kPrivate, Place::kShared}) {
    if (comm.engine() == "mpi") break;  // goes on within calls of MPI only
    GuardedFloats out(comm, place, values(rank, 100'000));
    GuardedFloats in(comm, place, std::vector<float>(100'000));
    Work sent, received;
    if (rank == 0) sent = comm.isend(out, 1, 9);
    if (rank == 1) {
      received = comm.irecv(in, 0, 9);
      received.wait();
      expect(problems, "while the sender is elsewhere", in.content(problems, "received"),
             [&](int64_t i) { return value(0, i); });
    }
    comm.split(0);
    if (rank == 0) sent.wait();
  }
  // Several at once to one peer, and some that are awaited meanwhile: all go on while their ranks are
  // elsewhere.
  for (const Place place : {Place::kPrivate, Place::kShared}) {
    if (comm.engine() == "mpi") break;
    std::vector<GuardedFloats> outs, ins;
    std::vector<Work> works;
    for (int k = 0; k < 3; ++k) {
      outs.emplace_back(comm, place, values(rank, 40'000, k));
      ins.emplace_back(comm, place, std::vector<float>(40'000));
    }
    if (rank == 1) {
      for (auto& in : ins) works.push_back(comm.irecv(in, 0, 11));
    }
    comm.barrier();
    if (rank == 0) {
      for (int k = 0; k < 2; ++k) works.push_back(comm.isend(outs[static_cast<size_t>(k)], 1, 11));
      comm.send(outs[2], 1, 11);
    }
    comm.barrier();
    for (const auto& work : works) work.wait();
    for (int k = 0; rank == 1 && k < 3; ++k) {
      expect(problems, "several at once", ins[static_cast<size_t>(k)].content(problems, "several at once"),
             [&](int64_t i) { return value(0, k + i); });
    }
  }
  // Messages that nobody waits for arrive all the same; buffers must only stay.
  auto dropped = values(rank, 200'000);
  std::vector<float> taken(dropped.size());
  comm.isend(dropped, comm.get_next_rank(), 8);
  comm.recv(taken, comm.get_prev_rank(), 8);
  expect(problems, "dropped", taken, [&](int64_t i) { return value(comm.get_prev_rank(), i); });
  comm.barrier();
  // Many in flight, in order, with a collective in between.
  std::vector<std::vector<float>> outs, ins(20, std::vector<float>(100));
  std::vector<Work> works;
  for (int k = 0; k < 20; ++k) outs.push_back(values(rank, 100, k));
  for (auto& in : ins) works.push_back(comm.irecv(in, comm.get_prev_rank()));
  comm.barrier();
  for (auto& out : outs) works.push_back(comm.isend(out, comm.get_next_rank()));
  for (const auto& work : works) work.wait();
  for (int k = 0; k < 20; ++k) {
    expect(problems, fmt::format("in order, {}", k), ins[static_cast<size_t>(k)],
           [&](int64_t i) { return value(comm.get_prev_rank(), k + i); });
  }
  return problems;
}

Problems check_async(Communicator& comm) {
  Problems problems;
  const int world = comm.world_size();
  std::vector<std::vector<float>> data;
  for (int k = 0; k < 10; ++k) data.push_back(values(comm.rank(), 1 + 7000 * (k % 3), k));
  std::vector<Work> works;
  works.reserve(data.size());
  for (auto& one : data) works.push_back(comm.iall_reduce(one));
  auto blocking = values(comm.rank(), 10);
  comm.all_reduce(blocking);  // after all that was queued
  for (const auto& work : works) {
    if (!work.is_completed()) problems.push_back("a blocking call has overtaken queued work");
    work.wait();
  }
  for (int k = 0; k < 10; ++k) {
    expect(problems, fmt::format("queued {}", k), data[static_cast<size_t>(k)],
           [&](int64_t i) { return sum_of(world, k + i); });
  }
  expect(problems, "blocking after queued", blocking, [&](int64_t i) { return sum_of(world, i); });
  comm.ibarrier().wait();
  return problems;
}

Problems check_split(Communicator& comm) {
  Problems problems;
  const int rank = comm.rank();
  auto halves = comm.split(rank % 2, -rank);  // in reversed order
  if (!halves) return {"split gave no group"};
  std::vector<float> data = {static_cast<float>(rank)};
  float wanted = 0;
  int members = 0;
  for (int other = rank % 2; other < comm.world_size(); other += 2) {
    wanted += static_cast<float>(other);
    ++members;
  }
  if (halves->world_size() != members) problems.push_back("a split group has the wrong size");
  for (int i = 0; i < 5; ++i) {
    data = {static_cast<float>(rank)};
    halves->all_reduce(data);
    expect(problems, "in a half", data, [&](int64_t) { return wanted; });
    std::vector<float> all = {1.0F};
    comm.all_reduce(all);
    expect(problems, "in the whole", all, [&](int64_t) { return static_cast<float>(comm.world_size()); });
  }
  data = {static_cast<float>(rank)};
  halves->broadcast(data, 0);  // the highest rank of the half comes first
  const int highest = rank % 2 + 2 * (members - 1);
  expect(problems, "order by key", data, [&](int64_t) { return static_cast<float>(highest); });
  if (comm.split(rank == 0 ? 0 : -1).has_value() != (rank == 0))
    problems.push_back("a negative colour is in a group");
  return problems;
}

}  // namespace lockstep::test
