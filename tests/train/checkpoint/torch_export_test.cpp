#include "train/checkpoint/torch_export.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <filesystem>

#include "lockstep/error.h"
#include "support/child.h"
#include "support/temporary_folder.h"
#include "train/checkpoint/samples.h"
#include "train/checkpoint/zip.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kLoad = R"(
import sys, torch, zipfile
assert zipfile.ZipFile(sys.argv[1]).testzip() is None
loaded = torch.load(sys.argv[1], weights_only=True)
assert type(loaded) is dict
for name, tensor in loaded.items():
    assert tensor.is_contiguous() and not tensor.requires_grad
    print(repr(name), tensor.dtype, tuple(tensor.shape), tensor.tolist())
)";

/// What Python says of the file.
std::string loaded(const fs::path& file) {
  test::Child python({"/usr/bin/python3", "-c", kLoad, file.string()},
                     {.environment = {{"PYTHONIOENCODING", "utf-8"}}});
  EXPECT_EQ(python.wait(), 0) << python.errors();
  return python.output();
}

template <typename T>
TensorData tensor(const std::string& name, TensorType type, std::vector<int64_t> shape,
                  const std::vector<T>& values) {
  return {.name = name, .type = type, .shape = std::move(shape), .bytes = std::as_bytes(std::span(values))};
}

TEST(TorchFile, OpensInPythonAsADictOfTensors) {
  const test::TemporaryFolder folder;
  const std::vector<float> floats = {1, 2, 3, 4, 5, 0.5};
  const std::vector<double> doubles = {1e300};
  const std::vector<int64_t> longs = {-1, int64_t{1} << 60};
  const std::vector<int32_t> ints = {-7};
  const std::vector<int16_t> shorts = {-300, 300};
  const std::vector<int8_t> chars = {-128};
  const std::vector<uint8_t> bytes = {255, 0, 1};
  const std::vector<uint16_t> halves = {0x3c00, 0xc000};
  const std::vector<uint16_t> brains = {0x3f80, 0xc000};
  write_torch_file(
      folder / "weights.pt",
      {tensor("layer.0.weight", TensorType::kF32, {2, 3}, floats),
       tensor("größe", TensorType::kF64, {}, doubles), tensor<float>("empty", TensorType::kF32, {0, 3}, {}),
       tensor("longs", TensorType::kI64, {2}, longs), tensor("ints", TensorType::kI32, {1, 1}, ints),
       tensor("shorts", TensorType::kI16, {2}, shorts), tensor("chars", TensorType::kI8, {1}, chars),
       tensor("bytes", TensorType::kU8, {3}, bytes),
       tensor("flags", TensorType::kBool, {3}, std::vector<uint8_t>{1, 0, 1}),
       tensor("halves", TensorType::kF16, {2}, halves), tensor("brains", TensorType::kBF16, {2}, brains)});
  EXPECT_EQ(loaded(folder / "weights.pt"),
            "'layer.0.weight' torch.float32 (2, 3) [[1.0, 2.0, 3.0], [4.0, 5.0, 0.5]]\n"
            "'größe' torch.float64 () 1e+300\n"
            "'empty' torch.float32 (0, 3) []\n"
            "'longs' torch.int64 (2,) [-1, 1152921504606846976]\n"
            "'ints' torch.int32 (1, 1) [[-7]]\n"
            "'shorts' torch.int16 (2,) [-300, 300]\n"
            "'chars' torch.int8 (1,) [-128]\n"
            "'bytes' torch.uint8 (3,) [255, 0, 1]\n"
            "'flags' torch.bool (3,) [True, False, True]\n"
            "'halves' torch.float16 (2,) [1.0, -2.0]\n"
            "'brains' torch.bfloat16 (2,) [1.0, -2.0]\n");
}

TEST(TorchFile, OpensWithManyTensorsAndWithNone) {
  const test::TemporaryFolder folder;
  std::vector<std::vector<float>> values;
  for (int i = 0; i < 300; ++i) values.push_back({static_cast<float>(i)});
  std::vector<TensorData> tensors;
  std::string expected;
  for (size_t i = 0; i < values.size(); ++i) {
    tensors.push_back(tensor(fmt::format("w{}", i), TensorType::kF32, {1}, values[i]));
    expected += fmt::format("'w{0}' torch.float32 (1,) [{0}.0]\n", i);
  }
  write_torch_file(folder / "many", tensors);
  EXPECT_EQ(loaded(folder / "many"), expected);
  write_torch_file(folder / "none", {});
  EXPECT_EQ(loaded(folder / "none"), "");
}

TEST(TorchFile, HasEveryTensorAtAMultipleOf64Bytes) {
  const test::TemporaryFolder folder;
  const std::string mark = "<a tensor that is easily found>!";
  const TensorData one = {.name = "a", .type = TensorType::kU8, .shape = {32}, .bytes = bytes_of(mark)};
  TensorData odd = {.name = "b", .type = TensorType::kU8, .shape = {3}, .bytes = bytes_of("odd")};
  TensorData other = one;
  other.name = "c";
  write_torch_file(folder / "x", {one, odd, other});
  const std::string file = test::read_file(folder / "x");
  const size_t first = file.find(mark);
  const size_t second = file.find(mark, first + 1);
  ASSERT_NE(second, std::string::npos);
  EXPECT_EQ(first % 64, 0U);
  EXPECT_EQ(second % 64, 0U);
}

TEST(TorchFile, ReplacesOneAndLeavesNothingElse) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "x", "old");
  write_torch_file(folder / "x", {});
  EXPECT_THAT(test::read_file(folder / "x"), testing::StartsWith("PK"));
  fs::create_directory(folder / "taken");
  EXPECT_THROW(write_torch_file(folder / "taken", {}), Error);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2);
}

TEST(TorchFile, RefusesWhatDoesNotFit) {
  const test::TemporaryFolder folder;
  const TensorData a = {.name = "a", .type = TensorType::kU8, .shape = {1}, .bytes = bytes_of("x")};
  TensorData other = a;
  const auto refuses = [&](const std::string& text) {
    EXPECT_THAT(
        [&] {
          write_torch_file(folder / "x", {a, other});
        },
        ThrowsMessage<UsageError>(HasSubstr(text)));
  };
  refuses("tensor \"a\": is there twice");
  other.name = "\xff";
  refuses("the name is no UTF-8");
  other = {.name = "b", .type = TensorType::kF32, .shape = {1}, .bytes = bytes_of("x")};
  refuses("tensor \"b\": has 1 bytes, which does not fit F32 of shape [1]");
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(TorchFile, RefusesMoreThanAZipHolds) {
  const test::TemporaryFolder folder;
  // Memory that nobody may read: it must be refused by its length alone.
  constexpr size_t kBytes = (size_t{1} << 32) - 100;
  void* memory = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const TensorData large = {.name = "large",
                            .type = TensorType::kU8,
                            .shape = {static_cast<int64_t>(kBytes)},
                            .bytes = {static_cast<const std::byte*>(memory), kBytes}};
  EXPECT_THAT([&] { write_torch_file(folder / "x", {large}); },
              ThrowsMessage<UsageError>(HasSubstr("more than 4 GiB or 65,000 tensors")));
  EXPECT_TRUE(fs::is_empty(folder.path()));
  munmap(memory, kBytes);
}

TEST(Crc32, IsTheOneOfZip) {
  EXPECT_EQ(crc32(bytes_of("123456789")), 0xcbf43926U);
  EXPECT_EQ(crc32({}), 0U);
}

}  // namespace
}  // namespace lockstep::train
