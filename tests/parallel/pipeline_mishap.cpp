#include "parallel/pipeline_mishap.h"

#include "parallel/pipeline_models.h"

namespace lockstep::test {

namespace {

/// Does nothing but count, and act when its time has come.
struct MishapLayerImpl : torch::nn::Module {
  explicit MishapLayerImpl(const Mishap& what) : mishap(what) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const int call = calls++;
    const bool is_due = call == (mishap.step - 1) * kMishapMicrobatches + mishap.microbatch;
    if (is_due && !mishap.in_backward) mishap.act();
    const torch::Tensor y = x * 1;
    if (is_due && mishap.in_backward) y.register_hook([this](const torch::Tensor&) { mishap.act(); });
    return y;
  }
  const Mishap mishap;
  int calls = 0;
};
TORCH_MODULE(MishapLayer);

}  // namespace

void train_into(Communicator& comm, const std::string& schedule, const Mishap& mishap) {
  // Large enough that a message is over only when it has been received.
  constexpr int64_t kWideDim = 64, kBatch = 1024;
  torch::nn::Sequential stage(torch::nn::Linear(kWideDim, kWideDim));
  if (comm.rank() == mishap.rank) stage->push_back(MishapLayer(mishap));
  Pipeline pipeline(stage, comm, mean_squared_error,
                    {.schedule = schedule, .microbatches = kMishapMicrobatches});
  const auto x = random(1, {kBatch, kWideDim});
  for (int step = 0; step < mishap.step + 2; ++step) pipeline.step(x, x);
}

}  // namespace lockstep::test
