#include "transport/mpi.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "launch/environment.h"
#include "launch/ports.h"
#include "lockstep/error.h"
#include "transport/meet_job.h"
#include "transport/mpi_process.h"
#include "transport/mpi_wire.h"
#include "transport/proof.h"
#include "transport/wired_job.h"

namespace lockstep::transport {

namespace {

/// Otherwise MPI_Init would make a world of one of every rank.
void require_launcher(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (environment.contains(name)) return;
  }
  throw UsageError(
      "engine mpi: this process was started neither by mpirun nor by srun with PMIx; hint: mpirun -n 4 "
      "program, or use "
      "the engine shm or gloo");
}

void require_same_place(const Identity& identity, const MpiPlace& place) {
  if (place.rank == identity.rank && place.world == identity.world_size) return;
  throw UsageError(fmt::format(
      "engine mpi: MPI says rank {} of {}, the launcher's variables say rank {} of {}; hint: start the "
      "program by mpirun, or by srun --mpi=pmix, without another launcher in between",
      place.rank, place.world, identity.rank, identity.world_size));
}

std::string random_text() {
  std::string text;
  for (const auto byte : random_nonce()) text += fmt::format("{:02x}", byte);
  return text;
}

/// Rank 0's text, on every rank. At most 255 bytes.
std::string broadcast_text(const std::string& text) {
  std::array<char, 256> bytes = {};
  std::copy_n(text.begin(), std::min(text.size(), bytes.size() - 1), bytes.begin());
  const auto lock = lock_mpi();
  require_mpi(MPI_Bcast(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, MPI_COMM_WORLD),
              "MPI_Bcast");
  return bytes.data();
}

/// The address of rank 0 that leads to another host of the job. Called by all ranks; rank 0 has the answer.
std::string find_address(const MpiPlace& place) {
  using Name = std::array<char, MPI_MAX_PROCESSOR_NAME>;
  Name own = {};
  int length = 0;
  std::vector<Name> names(static_cast<size_t>(place.world));
  {
    const auto lock = lock_mpi();
    require_mpi(MPI_Get_processor_name(own.data(), &length), "MPI_Get_processor_name");
    require_mpi(MPI_Gather(own.data(), sizeof(Name), MPI_BYTE, names.data(), sizeof(Name), MPI_BYTE, 0,
                           MPI_COMM_WORLD),
                "MPI_Gather");
  }
  if (place.rank != 0) return "";
  const auto other = std::find_if(names.begin(), names.end(), [&](const Name& name) { return name != own; });
  return own_address_towards(other == names.end() ? own.data() : other->data());
}

/// Where ranks on several hosts meet: what the environment does not say, rank 0 makes up.
NetworkOptions agree_on_network(const Identity& identity, const Environment& environment,
                                const MpiPlace& place) {
  NetworkOptions network = network_of(identity, environment);
  const std::string found = find_address(place);
  if (network.address.empty()) network.address = found;
  if (network.port == 0 && place.rank == 0) network.port = launch::find_free_port();
  if (network.token.empty() && place.rank == 0) network.token = random_text();
  return {.address = broadcast_text(network.address),
          .port = std::stoi(broadcast_text(std::to_string(network.port))),
          .token = broadcast_text(network.token)};
}

}  // namespace

std::unique_ptr<Job> connect_mpi(const Identity& identity, Control::Clock::time_point deadline) {
  const Environment environment = launch::current_environment();
  require_launcher(environment);
  const MpiPlace place = start_mpi(identity.rank);
  require_same_place(identity, place);

  Identity named = identity;
  if (named.job_id.empty()) named.job_id = broadcast_text(place.rank == 0 ? random_text() : "");
  const NetworkOptions network =
      is_on_one_host(identity) ? NetworkOptions{} : agree_on_network(identity, environment, place);
  auto control = meet_job("mpi", named, network, deadline);
  auto wire = std::make_unique<MpiWire>(control->failed_flag());
  return std::make_unique<WiredJob>("mpi", identity.rank, identity.world_size, std::move(control),
                                    std::move(wire));
}

}  // namespace lockstep::transport
