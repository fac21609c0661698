#include "train/run/mnist_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>

#include "lockstep/error.h"
#include "support/temporary_folder.h"
#include "train/data/fetch.h"

namespace lockstep::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string big_endian(uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift & 0xffU);
  return bytes;
}

/// The package's four files, of a few images: those of digit d have rows 2d and 2d + 1 lit.
class Cache {
 public:
  Cache() {
    write(0, 40);
    write(2, 20);
  }
  const std::filesystem::path& path() const { return folder_.path(); }

  /// Images, or labels, that say something else.
  void write_images(size_t file, uint32_t count, uint32_t side) {
    open(file) << big_endian(0x803) << big_endian(count) << big_endian(side) << big_endian(side)
               << std::string(count * side * side, '\0');
  }
  void write_labels(size_t file, const std::string& labels) {
    open(file) << big_endian(0x801) << big_endian(static_cast<uint32_t>(labels.size())) << labels;
  }

 private:
  std::ofstream open(size_t file) {
    const auto path = folder_ / mnist().files[file].path;
    std::filesystem::create_directories(path.parent_path());
    return std::ofstream(path, std::ios::binary);
  }
  void write(size_t images, uint32_t count) {
    auto stream = open(images);
    stream << big_endian(0x803) << big_endian(count) << big_endian(28) << big_endian(28);
    std::string labels;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t digit = i % 10;
      std::string image(28 * 28, '\0');
      image.replace(2 * digit * 28, 2 * 28, 2 * 28, '\xff');
      stream << image;
      labels += static_cast<char>(digit);
    }
    write_labels(images + 1, labels);
  }

  test::TemporaryFolder folder_;
};

TEST(MnistTask, GivesTheImagesAndLabelsThatAreAskedFor) {
  const Cache cache;
  const auto task = make_mnist_task(cache.path());
  EXPECT_EQ(task->train_size(), 40);
  EXPECT_EQ(task->validation_size(), 20);
  const auto batch = task->train_batch({13, 7});
  EXPECT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{2, 784}));
  EXPECT_TRUE(torch::equal(batch.targets, torch::tensor({3, 7}, torch::kLong)));
  auto expected = torch::zeros({784});
  expected.slice(0, 6 * 28, 8 * 28).fill_(1);
  EXPECT_TRUE(torch::equal(batch.inputs[0], expected));
  EXPECT_TRUE(torch::equal(task->validation_batch(4, 6).targets, torch::tensor({4, 5}, torch::kLong)));
}

TEST(MnistTask, ItsClassifierLearnsThem) {
  const Cache cache;
  const auto task = make_mnist_task(cache.path());
  auto model = task->make_model(1);
  torch::optim::Adam optimizer(model->parameters(), 1e-2);
  std::vector<size_t> all(40);
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  const auto batch = task->train_batch(all);
  for (int step = 0; step < 30; ++step) {
    optimizer.zero_grad();
    task->loss(model->forward(batch.inputs), batch.targets).backward();
    optimizer.step();
  }
  const auto validation = task->validation_batch(0, 20);
  const auto score = task->score(model->forward(validation.inputs), validation.targets);
  EXPECT_EQ(score.right, 20);
  EXPECT_EQ(score.all, 20);
}

TEST(MnistTask, RefusesFilesThatDoNotFitByName) {
  const auto refused = [](Cache& cache, const std::string& file, const std::string& why) {
    EXPECT_THAT([&] { make_mnist_task(cache.path()); },
                ThrowsMessage<Error>(AllOf(HasSubstr(file), HasSubstr(why))));
  };
  Cache small, few, wrong;
  small.write_images(0, 40, 27);
  refused(small, "train-images", "expected images of 784 pixels");
  few.write_labels(3, std::string(19, '\1'));
  refused(few, "t10k-labels", "expected a label for each of 20 images");
  wrong.write_labels(1, std::string(40, '\x0a'));
  refused(wrong, "train-labels", "a label of 10");
}

}  // namespace
}  // namespace lockstep::train
