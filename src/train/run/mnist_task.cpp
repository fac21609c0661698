#include "train/run/mnist_task.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <numeric>

#include "lockstep/error.h"
#include "parallel/default_generator.h"
#include "parallel/seed.h"
#include "train/data/fetch.h"
#include "train/data/idx.h"

namespace lockstep::train {

namespace {

/// The digit of an image.
class MnistTask : public Task {
 public:
  explicit MnistTask(const std::filesystem::path& folder)
      : train_(read(folder, 0)), validation_(read(folder, 2)) {}

  int64_t train_size() const override { return train_.labels.shape[0]; }
  int64_t validation_size() const override { return validation_.labels.shape[0]; }
  Batch train_batch(const std::vector<size_t>& indices) const override { return batch_of(train_, indices); }
  Batch validation_batch(int64_t begin, int64_t end) const override {
    std::vector<size_t> indices(static_cast<size_t>(end - begin));
    std::iota(indices.begin(), indices.end(), static_cast<size_t>(begin));
    return batch_of(validation_, indices);
  }

  torch::nn::Sequential make_model(uint64_t seed) const override {
    const parallel::KeepDefaultGenerator keep;
    torch::nn::Sequential layers;
    const std::vector<int64_t> widths = {kPixels, 128, 64, kDigits};
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      torch::nn::Linear linear(widths[i], widths[i + 1]);
      const at::NoGradGuard no_grad;
      auto generator =
          at::detail::createCPUGenerator(parallel::derive_seed(seed, parallel::Stream::kWeights, i));
      const double bound = std::sqrt(6.0 / static_cast<double>(widths[i]));
      linear->weight.uniform_(-bound, bound, generator);
      linear->bias.zero_();
      layers->push_back("linear" + std::to_string(i), linear);
      if (i + 2 < widths.size()) layers->push_back("relu" + std::to_string(i), torch::nn::ReLU());
    }
    return layers;
  }
  at::Tensor loss(const at::Tensor& output, const at::Tensor& targets) const override {
    return at::cross_entropy_loss(output, targets);
  }
  int64_t tokens_per_sample() const override { return 1; }
  std::string unit() const override { return "images"; }
  int64_t default_steps(int64_t batch) const override {
    return std::max<int64_t>(1, 2 * train_size() / batch);
  }

 private:
  static constexpr int64_t kPixels = 28 * 28, kDigits = 10;
  struct Images {
    Idx images, labels;
  };

  /// Images are file `first` of the package, their labels the one behind it.
  static Images read(const std::filesystem::path& folder, size_t first) {
    const auto images = folder / mnist().files[first].path, labels = folder / mnist().files[first + 1].path;
    Images all = {.images = read_idx(images), .labels = read_idx(labels)};
    const auto& shape = all.images.shape;
    if (shape.size() != 3 || shape[1] * shape[2] != kPixels) {
      throw Error(fmt::format("{}: an array of [{}], expected images of {} pixels", images.string(),
                              fmt::join(shape, ", "), kPixels));
    }
    if (all.labels.shape != std::vector<int64_t>{shape[0]}) {
      throw Error(fmt::format("{}: an array of [{}], expected a label for each of {} images", labels.string(),
                              fmt::join(all.labels.shape, ", "), shape[0]));
    }
    for (const uint8_t label : all.labels.values) {
      if (label >= kDigits)
        throw Error(fmt::format("{}: a label of {}, expected 0 to 9", labels.string(), label));
    }
    return all;
  }

  static Batch batch_of(const Images& from, const std::vector<size_t>& indices) {
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch = {.inputs = at::empty({count, kPixels}, at::kFloat),
                   .targets = at::empty({count}, at::kLong)};
    float* pixel = batch.inputs.data_ptr<float>();
    int64_t* label = batch.targets.data_ptr<int64_t>();
    for (const size_t index : indices) {
      const uint8_t* const image = from.images.values.data() + index * kPixels;
      for (int64_t i = 0; i < kPixels; ++i) *pixel++ = static_cast<float>(image[i]) / 255;
      *label++ = from.labels.values[index];
    }
    return batch;
  }

  Images train_, validation_;
};

}  // namespace

std::unique_ptr<Task> make_mnist_task(const std::filesystem::path& folder) {
  return std::make_unique<MnistTask>(folder);
}

}  // namespace lockstep::train
