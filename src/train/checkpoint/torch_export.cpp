#include "train/checkpoint/torch_export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "launch/whole_file.h"
#include "lockstep/error.h"
#include "train/checkpoint/strict_json.h"
#include "train/checkpoint/zip.h"

namespace lockstep::train {

namespace {

// In the order of TensorType.
constexpr std::array<std::string_view, 10> kStorages = {"Bool", "Byte", "Char",     "Short", "Int",
                                                        "Long", "Half", "BFloat16", "Float", "Double"};

/// Python's pickle, protocol 2, of what a dict of tensors needs. Nothing is shared, so there is no memo.
class Pickle {
 public:
  void op(std::string_view opcode) { text_ += opcode; }

  void text(std::string_view value) {
    text_ += 'X';
    put(value.size(), 4);
    text_ += value;
  }

  void number(int64_t value) {
    const bool is_short = value >= 0 && value <= std::numeric_limits<int32_t>::max();
    text_ += is_short ? "J" : "\x8a\x08";  // BININT, or LONG1 of eight bytes
    put(static_cast<uint64_t>(value), is_short ? 4 : 8);
  }

  void global(std::string_view module, std::string_view name) {
    text_ += fmt::format("c{}\n{}\n", module, name);
  }

  void numbers(const std::vector<int64_t>& values) {
    op("(");
    for (const int64_t value : values) number(value);
    op("t");
  }

  const std::string& bytes() const { return text_; }

 private:
  void put(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xff);
  }

  std::string text_;
};

/// In elements, of a tensor in C order.
std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i] == 0 ? 1 : shape[i];
  }
  return strides;
}

/// A call of torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks).
void add_tensor(Pickle& pickle, const TensorData& tensor, const std::string& key) {
  const auto elements = static_cast<int64_t>(tensor.bytes.size() / element_bytes(tensor.type));
  pickle.global("torch._utils", "_rebuild_tensor_v2");
  pickle.op("((");
  pickle.text("storage");
  pickle.global("torch", fmt::format("{}Storage", kStorages.at(static_cast<size_t>(tensor.type))));
  pickle.text(key);
  pickle.text("cpu");
  pickle.number(elements);
  pickle.op("tQ");  // the tuple is a persistent id
  pickle.number(0);
  pickle.numbers(tensor.shape);
  pickle.numbers(strides_of(tensor.shape));
  pickle.op("\x89");  // false
  pickle.global("collections", "OrderedDict");
  pickle.op(")RtR");  // called with (), then the function with all
}

std::string pickle_of(const std::vector<TensorData>& tensors) {
  Pickle pickle;
  pickle.op("\x80\x02}(");
  for (size_t i = 0; i < tensors.size(); ++i) {
    pickle.text(tensors[i].name);
    add_tensor(pickle, tensors[i], fmt::format("{}", i));
  }
  pickle.op("u.");
  return pickle.bytes();
}

void check(const std::vector<TensorData>& tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorData& tensor : tensors) {
    const auto refuse = [&](std::string_view reason) {
      throw UsageError(fmt::format("torch file: tensor {}: {}", shown_text(tensor.name), reason));
    };
    if (!names.insert(tensor.name).second) refuse("is there twice");
    if (tensor_bytes(tensor.type, tensor.shape) != tensor.bytes.size()) {
      refuse(fmt::format("has {} bytes, which does not fit {} of shape [{}]", tensor.bytes.size(),
                         name(tensor.type), fmt::join(tensor.shape, ",")));
    }
    try {
      static_cast<void>(nlohmann::json(tensor.name).dump());
    } catch (const nlohmann::json::type_error&) {
      refuse("the name is no UTF-8");
    }
  }
}

}  // namespace

void write_torch_file(const std::filesystem::path& file, const std::vector<TensorData>& tensors) {
  check(tensors);
  const std::string pickle = pickle_of(tensors);
  ZipArchive archive;
  bool has_room = archive.add("archive/data.pkl", std::as_bytes(std::span(pickle)));
  for (size_t i = 0; i < tensors.size(); ++i) {
    has_room = has_room && archive.add(fmt::format("archive/data/{}", i), tensors[i].bytes);
  }
  constexpr std::string_view kVersion = "3\n";
  has_room = has_room && archive.add("archive/version", std::as_bytes(std::span(kVersion)));
  if (!has_room) {
    throw UsageError(
        fmt::format("torch file {}: more than 4 GiB or 65,000 tensors do not fit in one; hint: Python's "
                    "safetensors opens the "
                    "files of the checkpoint",
                    file.string()));
  }
  if (const int reason = launch::write_whole_file(file, archive.finish())) {
    throw Error(fmt::format("cannot write {}: {}; hint: make room, or name another file", file.string(),
                            std::strerror(reason)));
  }
}

}  // namespace lockstep::train
