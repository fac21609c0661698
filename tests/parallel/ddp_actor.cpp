// A rank of the tests of data parallel training between processes: `ddp_actor WHAT`. Says what is wrong, and
// then ends with 1.
#include <fmt/format.h>
#include <lockstep/lockstep.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "transport/process_arena.h"

namespace {

using namespace lockstep;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

torch::Tensor random(uint64_t seed, at::IntArrayRef shape) {
  return at::randn(shape, at::detail::createCPUGenerator(seed));
}

bool are_equal_on_all_ranks(Communicator& comm, const std::vector<torch::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    auto first = tensor.detach().clone();
    comm.broadcast(first);
    if (!torch::equal(first, tensor)) return false;
  }
  return true;
}

/// Convolution, normalised over all ranks, and a tied embedding-like weight at the end.
struct NetImpl : torch::nn::Module {
  NetImpl(Communicator comm, bool synchronises) {
    // Without a bias, which the normalisation would take away: Adam makes much of the rounding of a gradient
    // of zero.
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3).bias(false)));
    if (synchronises) {
      sync_norm = register_module("norm", SyncBatchNorm(SyncBatchNormOptions(4), comm));
    } else {
      norm = register_module("norm", torch::nn::BatchNorm2d(4));
    }
    in = register_parameter("in", torch::empty({36, 5}));
    out = register_parameter("out", in);
    const torch::NoGradGuard no_grad;
    auto generator = at::detail::createCPUGenerator(3);
    for (auto& parameter : parameters()) parameter.uniform_(-0.3, 0.3, generator);
  }
  torch::Tensor forward(const torch::Tensor& input) {
    auto x = conv->forward(input.view({-1, 2, 5, 5}));
    x = (sync_norm.is_empty() ? norm->forward(x) : sync_norm->forward(x)).relu().flatten(1);
    return x.matmul(in).tanh().matmul(out.t());
  }
  torch::nn::Conv2d conv = nullptr;
  torch::nn::BatchNorm2d norm = nullptr;
  SyncBatchNorm sync_norm = nullptr;
  torch::Tensor in, out;
};
TORCH_MODULE(Net);

/// Some steps on shares of each batch, against one process on the whole; weights must agree after each.
void parity(Communicator& comm) {
  const int world = comm.world_size();
  Net alone(comm, /*synchronises=*/false);
  Net model(comm, /*synchronises=*/true);
  DistributedDataParallel ddp(model, comm, {.bucket_cap_mib = 0.001, .first_bucket_cap_mib = 0.001});
  std::vector<torch::Tensor> once;
  for (const auto& item : alone->named_parameters()) {
    if (item.key() != "out") once.push_back(item.value());  // the same tensor as "in"
  }
  FusedAdam optimizer(model->parameters(), torch::optim::AdamOptions(0.01));
  torch::optim::Adam expected(once, torch::optim::AdamOptions(0.01));
  for (uint64_t step = 0; step < 5; ++step) {
    const auto batch = random(step, {4 * world, 50});
    expected.zero_grad();
    alone->forward(batch).square().mean().backward();
    expected.step();
    optimizer.zero_grad();
    ddp.forward(batch.narrow(0, 4 * comm.rank(), 4)).square().mean().backward();
    optimizer.step();
    for (const auto& item : alone->named_parameters()) {
      const torch::Tensor found = model->named_parameters()[item.key()];
      require(torch::allclose(found, item.value(), 1e-3, 1e-4),
              fmt::format("step {}: {} differs", step, item.key()));
    }
    for (const auto& item : alone->named_buffers()) {
      const torch::Tensor found = model->named_buffers()[item.key()];
      require(torch::allclose(found.to(torch::kFloat), item.value().to(torch::kFloat), 1e-3, 1e-4),
              fmt::format("step {}: buffer {} differs", step, item.key()));
    }
    require(are_equal_on_all_ranks(comm, model->parameters()), "ranks differ");
  }
  const auto arena = transport::process_arena();
  for (const auto& parameter : model->parameters()) {
    const auto& gradient = parameter.grad();
    const bool is_shared = arena->contains(gradient.data_ptr(), gradient.nbytes());
    require(is_shared == (comm.engine() == "shm"), "gradients are not where they shall be");
  }
}

int64_t resident_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

struct Size {
  int64_t dim;
  int steps;
};

/// Memory stays as it is after the first steps; and there is one copy of everything.
void memory(Communicator& comm, const Size& size) {
  const auto before = shared_memory_use().used_bytes;
  FullMLP model(size.dim, 8, 1);
  int64_t parameter_bytes = 0;
  for (const auto& parameter : model->parameters())
    parameter_bytes += static_cast<int64_t>(parameter.nbytes());
  DistributedDataParallel ddp(model, comm);
  FusedAdam optimizer(model->parameters(), torch::optim::AdamOptions(1e-4));
  const int64_t batch = 8;
  const auto x = random(static_cast<uint64_t>(comm.rank()), {batch, size.dim});
  const auto step = [&] {
    optimizer.zero_grad();
    ddp.forward(x, x).backward();
    optimizer.step();
  };
  for (int i = 0; i < 20; ++i) step();
  const auto early = shared_memory_use();
  const auto early_resident = resident_bytes();
  for (int i = 0; i < size.steps - 20; ++i) step();
  const auto late = shared_memory_use();
  require(late.peak_used_bytes == early.peak_used_bytes,
          fmt::format("the peak grew from {} to {} bytes", early.peak_used_bytes, late.peak_used_bytes));
  require(late.held_bytes == early.held_bytes, "more memory was taken from the system");
  require(resident_bytes() < early_resident + (4 << 20), "the process grew");
  if (comm.engine() != "shm" || size.dim < 512) return;  // small ones drown in what a communicator needs
  // Weights, gradients, two moments; each layer keeps its input, and its output before the ReLU until then; a
  // block of memory is a little larger than what is asked for.
  const auto activations = static_cast<int64_t>(8 * 2 * batch * size.dim * 4);
  const auto expected = static_cast<double>(4 * parameter_bytes + activations);
  const auto peak = static_cast<double>(late.peak_used_bytes - before);
  require(peak < 1.05 * expected, fmt::format("peak {} bytes, expected {}", peak, expected));
  require(peak > 0.9 * expected,
          fmt::format("peak {} bytes, expected {}: the count is wrong", peak, expected));
}

/// Every rank draws its own dropout; replicas stay equal.
void dropout(Communicator& comm) {
  torch::manual_seed(static_cast<uint64_t>(100 + comm.rank()));
  torch::nn::Sequential model(torch::nn::Linear(8, 8), torch::nn::Dropout(0.5), torch::nn::Linear(8, 8));
  DistributedDataParallel ddp(model, comm);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const auto x = torch::ones({4, 8});
  const torch::Tensor drawn = torch::nn::functional::dropout(torch::ones({64}));
  torch::Tensor of_rank_0 = drawn.clone();
  comm.broadcast(of_rank_0);
  require(comm.rank() == 0 || !torch::equal(drawn, of_rank_0), "all ranks draw the same");
  for (int i = 0; i < 5; ++i) {
    optimizer.zero_grad();
    ddp.forward(x).square().mean().backward();
    optimizer.step();
    require(are_equal_on_all_ranks(comm, model->parameters()), "ranks differ");
  }
}

/// The last rank dies in the middle of a backward.
void die(Communicator& comm) {
  FullMLP model(32, 4, 1);
  DistributedDataParallel ddp(model, comm, {.bucket_cap_mib = 0.001, .first_bucket_cap_mib = 0.001});
  const auto x = random(static_cast<uint64_t>(comm.rank()), {2, 32});
  ddp.forward(x).mean().backward();
  const bool dies = comm.rank() == comm.world_size() - 1;
  auto output = ddp.forward(x);
  if (dies) {
    model->parameters()[2].register_hook([](const at::Tensor&) { raise(SIGKILL); });
  }
  output.mean().backward();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    auto comm = init_distributed();
    if (what == "parity") {
      parity(comm);
    } else if (what == "memory") {
      memory(comm, {.dim = 64, .steps = 1000});
    } else if (what == "peak") {
      memory(comm, {.dim = 512, .steps = 40});
    } else if (what == "dropout") {
      dropout(comm);
    } else if (what == "die") {
      die(comm);
    } else {
      throw std::runtime_error("what?");
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
