// The primitives at work: a model is initialised by broadcast, data goes out by scatter, results come back by
// gather.
//
//   lockstep run --nproc-per-node 4 build/release/bin/example_primitives
#include <lockstep/core.h>

#include <cstdio>
#include <numeric>

int main() {
  auto comm = lockstep::init_distributed();
  const int rank = comm.rank();
  const int world = comm.world_size();

  // Only rank 0 knows the weights; afterwards everybody has the same bits.
  std::vector<float> weights(3);
  if (rank == 0) weights = {0.5F, -1.0F, 2.0F};
  comm.broadcast(weights, /*root=*/0);

  // Rank 0 has the data set, two samples of three features for each rank; each rank gets its own part.
  constexpr int64_t kSamples = 2, kFeatures = 3;
  std::vector<float> all_samples;
  if (rank == 0) {
    all_samples.resize(static_cast<size_t>(world * kSamples * kFeatures));
    std::iota(all_samples.begin(), all_samples.end(), 0.0F);
  }
  std::vector<float> samples(kSamples * kFeatures);
  comm.scatter(all_samples, samples, /*root=*/0);

  // Everybody predicts on its own samples ...
  std::vector<float> predictions(kSamples, 0.0F);
  for (size_t sample = 0; sample < kSamples; ++sample) {
    for (size_t feature = 0; feature < kFeatures; ++feature) {
      predictions[sample] += weights[feature] * samples[sample * kFeatures + feature];
    }
  }

  // ... rank 0 collects them in rank order, and everybody knows the mean.
  std::vector<float> all_predictions(rank == 0 ? static_cast<size_t>(world * kSamples) : 0);
  comm.gather(predictions, all_predictions, /*root=*/0);
  std::vector<float> mean = {(predictions[0] + predictions[1]) / kSamples};
  comm.all_reduce(mean, lockstep::ReduceOp::kMean);

  if (rank == 0) {
    for (size_t i = 0; i < all_predictions.size(); ++i) {
      std::printf("sample %zu, from rank %zu: %g\n", i, i / kSamples,
                  static_cast<double>(all_predictions[i]));
    }
    std::printf("mean on every rank: %g\n", static_cast<double>(mean[0]));
  }
  // Sample s is 3s, 3s+1, 3s+2: its prediction is 4.5 s + 3.
  const double expected = 4.5 * (static_cast<double>(world * kSamples) - 1) / 2 + 3;
  return static_cast<double>(mean[0]) == expected ? 0 : 1;
}
