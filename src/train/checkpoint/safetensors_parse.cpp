#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "lockstep/error.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/strict_json.h"

namespace lockstep::train {

namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostSize = std::numeric_limits<int64_t>::max();

/// Reads the header's JSON without building a document, which would need ten times the memory. At each place
/// only one kind of value may stand, so nothing can be nested deeper than the format is.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& file) : header_(header), file_(file) {}

  bool start_object(size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kMetadata:
        place_ = Place::kMetadataKeys;
        return true;
      case Place::kTensor:
        place_ = Place::kFields;
        return true;
      default:
        refuse("an object");
    }
  }

  bool key(std::string& key) override {
    if (place_ == Place::kTop) {
      start_member(key);
    } else if (place_ == Place::kMetadataKeys) {
      if (header_.metadata.contains(key)) fail(fmt::format("the metadata have {} twice", shown_text(key)));
      metadata_key_ = key;
      place_ = Place::kMetadataText;
    } else {
      start_field(key);
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kFields) {
      for (const auto& [seen, field] : {std::pair(has_type_, "dtype"), std::pair(has_shape_, "shape"),
                                        std::pair(has_ends_, "data_offsets")}) {
        if (!seen) fail(fmt::format("'{}' is missing", field));
      }
      entry_.begin = ends_[0];
      entry_.end = ends_[1];
      header_.tensors.push_back(std::move(entry_));
    }
    entry_ = {};
    in_entry_ = false;
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::kMetadataText) {
      header_.metadata[metadata_key_] = text;
      place_ = Place::kMetadataKeys;
      return true;
    }
    if (place_ != Place::kType) refuse(shown_text(text));
    const auto type = find_tensor_type(text);
    if (!type) fail(fmt::format("the dtype {} is unknown", shown_text(text)));
    entry_.type = *type;
    place_ = Place::kFields;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) refuse("an array");
    place_ = place_ == Place::kShape ? Place::kSizes : Place::kEnds;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kEnds && ends_.size() != 2) {
      fail(fmt::format("'data_offsets' has {} numbers instead of 2", ends_.size()));
    }
    place_ = Place::kFields;
    return true;
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (place_ == Place::kSizes) {
      if (number > kMostSize) fail(fmt::format("the size {} is more than {}", number, kMostSize));
      if (entry_.shape.size() == kMostDimensions) fail(fmt::format("more than {} sizes", kMostDimensions));
      entry_.shape.push_back(static_cast<int64_t>(number));
    } else if (place_ == Place::kEnds) {
      if (ends_.size() == 2) fail("'data_offsets' has more than 2 numbers");
      ends_.push_back(number);
    } else {
      refuse(fmt::format("{}", number));
    }
    return true;
  }

  bool number_integer(number_integer_t number) override { refuse(fmt::format("{}", number)); }
  bool number_float(number_float_t, const std::string& text) override { refuse(shown_text(text)); }
  bool null() override { refuse("null"); }
  bool boolean(bool value) override { refuse(value ? "true" : "false"); }
  bool binary(binary_t&) override { refuse("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail(fmt::format("no valid JSON at byte {} of the header", position));
  }

 private:
  enum class Place {
    kStart,
    kTop,
    kMetadata,
    kMetadataKeys,
    kMetadataText,
    kTensor,
    kFields,
    kType,
    kShape,
    kSizes,
    kOffsets,
    kEnds,
    kEnd
  };

  void start_member(const std::string& key) {
    if (!names_.insert(key).second) fail(fmt::format("{} is there twice", shown_text(key)));
    in_entry_ = key != "__metadata__";
    place_ = in_entry_ ? Place::kTensor : Place::kMetadata;
    if (!in_entry_) return;
    entry_.name = key;
    ends_.clear();
    has_type_ = has_shape_ = has_ends_ = false;
  }

  void start_field(const std::string& key) {
    bool* seen = nullptr;
    std::tie(seen, place_) = key == "dtype"          ? std::tuple(&has_type_, Place::kType)
                             : key == "shape"        ? std::tuple(&has_shape_, Place::kShape)
                             : key == "data_offsets" ? std::tuple(&has_ends_, Place::kOffsets)
                                                     : std::tuple(nullptr, Place::kFields);
    if (seen == nullptr) fail(fmt::format("the key {} is unknown", shown_text(key)));
    if (*seen) fail(fmt::format("'{}' is there twice", key));
    *seen = true;
  }

  [[noreturn]] void fail(std::string_view reason) const {
    if (!in_entry_) throw Error(fmt::format("safetensors {}: {}", file_, reason));
    throw Error(fmt::format("safetensors {}: tensor {}: {}", file_, shown_text(entry_.name), reason));
  }

  [[noreturn]] void refuse(std::string_view found) const {
    fail(fmt::format("found {}, expected {}", found, expected()));
  }

  std::string_view expected() const {
    switch (place_) {
      case Place::kMetadataText:
        return "a text in the metadata";
      case Place::kType:
        return "a text for 'dtype'";
      case Place::kShape:
        return "an array for 'shape'";
      case Place::kOffsets:
        return "an array for 'data_offsets'";
      case Place::kSizes:
      case Place::kEnds:
        return "a whole number from 0 on";
      default:
        return "an object";
    }
  }

  SafetensorsHeader& header_;
  const std::string& file_;
  Place place_ = Place::kStart;
  TensorEntry entry_;
  bool in_entry_ = false;
  bool has_type_ = false;
  bool has_shape_ = false;
  bool has_ends_ = false;
  std::vector<uint64_t> ends_;
  std::string metadata_key_;
  std::unordered_set<std::string> names_;
};

/// The header's JSON.
std::string_view header_text(std::string_view start_of_file, uint64_t file_bytes, const std::string& file) {
  const auto fail = [&](std::string_view reason) {
    throw Error(fmt::format("safetensors {}: {}", file, reason));
  };
  if (file_bytes < kLengthBytes || start_of_file.size() < kLengthBytes) {
    fail(fmt::format("has {} bytes, fewer than {}", file_bytes, kLengthBytes));
  }
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(start_of_file[i]);
  if (length > kMostHeaderBytes) {
    fail(fmt::format("a header of {} bytes, more than {}", length, kMostHeaderBytes));
  }
  if (length > file_bytes - kLengthBytes || length > start_of_file.size() - kLengthBytes) {
    fail(fmt::format("a header of {} bytes in a file of {}", length, file_bytes));
  }
  const std::string_view text = start_of_file.substr(kLengthBytes, length);
  if (!text.starts_with('{')) fail("the header does not start with '{'");
  // The parser would take a zero byte for the end.
  if (text.find('\0') != std::string_view::npos) fail("the header has a zero byte");
  if (text[text.find_last_not_of(' ')] != '}') fail("the header does not end with '}' and spaces");
  return text;
}

/// Every byte of the data belongs to one tensor.
void check_layout(const SafetensorsHeader& header, uint64_t data_bytes, const std::string& file) {
  uint64_t expected = 0;
  for (const TensorEntry& tensor : header.tensors) {
    const auto fail = [&](std::string_view reason) {
      throw Error(fmt::format("safetensors {}: tensor {}: {}", file, shown_text(tensor.name), reason));
    };
    if (tensor.begin != expected || tensor.end < tensor.begin) {
      fail(fmt::format("data_offsets are [{},{}], expected to begin at {}: {}", tensor.begin, tensor.end,
                       expected, tensor.begin > expected ? "a hole" : "an overlap"));
    }
    const auto bytes = tensor_bytes(tensor.type, tensor.shape);
    if (!bytes) fail("the shape is too large");
    if (*bytes != tensor.end - tensor.begin) {
      fail(fmt::format("has {} bytes, but its type and shape make {}", tensor.end - tensor.begin, *bytes));
    }
    expected = tensor.end;
  }
  if (expected != data_bytes) {
    throw Error(fmt::format("safetensors {}: the tensors have {} bytes, but the file has {} for them", file,
                            expected, data_bytes));
  }
}

}  // namespace

SafetensorsHeader parse_safetensors(std::string_view start_of_file, uint64_t file_bytes,
                                    const std::string& file_name) {
  const std::string_view text = header_text(start_of_file, file_bytes, file_name);
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + text.size();
  HeaderReader reader(header, file_name);
  Json::sax_parse(text, &reader);
  std::ranges::stable_sort(header.tensors, {},
                           [](const TensorEntry& tensor) { return std::tuple(tensor.begin, tensor.end); });
  check_layout(header, file_bytes - header.data_begin, file_name);
  return header;
}

}  // namespace lockstep::train
