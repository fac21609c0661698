#include "train/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "lockstep/error.h"
#include "train/checkpoint/strict_json.h"

namespace lockstep::train {

namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr size_t kHashDigits = 16;

/// A JSON object with these keys and no other, and where it stands.
class Node {
 public:
  Node(const Json& value, std::string place, std::initializer_list<const char*> keys)
      : value_(value), place_(std::move(place)) {
    if (!value_.is_object()) fail(fmt::format("{} is no object", shown_json(value_)));
    for (const char* key : keys) {
      if (!value_.contains(key)) fail(fmt::format("'{}' is missing", key));
    }
    if (value_.size() == keys.size()) return;
    for (const auto& [key, ignored] : value_.items()) {
      if (std::ranges::find(keys, key) == keys.end()) {
        fail(fmt::format("the key {} is unknown", shown_text(key)));
      }
    }
  }

  const Json& at(const char* key) const { return value_.at(key); }

  uint64_t number(const char* key, uint64_t most) const {
    const Json& value = at(key);
    if (!value.is_number_unsigned() || value.get<uint64_t>() > most) {
      fail(fmt::format("'{}' is {}, expected a whole number from 0 to {}", key, shown_json(value), most));
    }
    return value.get<uint64_t>();
  }

  uint64_t hash(const char* key) const {
    const Json& value = at(key);
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      const char* end = text.data() + text.size();
      uint64_t hash = 0;
      const bool is_lower = text.find_first_not_of("0123456789abcdef") == std::string::npos;
      if (text.size() == kHashDigits && is_lower && std::from_chars(text.data(), end, hash, 16).ptr == end) {
        return hash;
      }
    }
    fail(fmt::format("'{}' is {}, expected {} hexadecimal digits", key, shown_json(value), kHashDigits));
  }

  [[noreturn]] void fail(std::string_view reason) const {
    throw Error(fmt::format("{}: {}", place_, reason));
  }

 private:
  const Json& value_;
  std::string place_;
};

}  // namespace

std::string manifest_json(const Manifest& manifest) {
  std::vector<Seal> files = manifest.files;
  std::ranges::sort(files, {}, &Seal::file);
  std::string json = fmt::format("{{\"format\": {},\n\"step\": {},\n\"files\": {{", kFormat, manifest.step);
  for (size_t i = 0; i < files.size(); ++i) {
    const Seal& seal = files[i];
    const bool is_twice = i > 0 && files[i - 1].file == seal.file;
    if (is_twice || !is_file_name(seal.file) || seal.file == kManifestName) {
      throw UsageError(fmt::format("checkpoint manifest: a file {} {}", shown_text(seal.file),
                                   is_twice ? "is there twice" : "cannot be in it"));
    }
    json += fmt::format("{}\n\"{}\": {{\"bytes\": {}, \"xxh3\": \"{:016x}\"}}", i == 0 ? "" : ",", seal.file,
                        seal.bytes, seal.xxh3);
  }
  return json + "\n}}\n";
}

Manifest parse_manifest(std::string_view text, const std::string& origin) {
  const Json document = parse_strict(text, origin);
  // The format first: another one may have other keys.
  if (const auto format = document.find("format"); format != document.end() && *format != kFormat) {
    throw Error(fmt::format("{}: format {} instead of {}; hint: a newer Lockstep may have written it", origin,
                            shown_json(*format), kFormat));
  }
  const Node root(document, origin, {"format", "step", "files"});
  Manifest manifest{.step = static_cast<int64_t>(root.number("step", kMostSteps))};
  const Json& files = root.at("files");
  if (!files.is_object()) root.fail(fmt::format("'files' is {}, expected an object", shown_json(files)));
  for (const auto& [name, value] : files.items()) {
    if (!is_file_name(name) || name == kManifestName) {
      root.fail(fmt::format("{} is no name of a file in a checkpoint", shown_text(name)));
    }
    const Node file(value, fmt::format("{}: {}", origin, name), {"bytes", "xxh3"});
    manifest.files.push_back({.file = name,
                              .bytes = file.number("bytes", std::numeric_limits<int64_t>::max()),
                              .xxh3 = file.hash("xxh3")});
  }
  return manifest;
}

}  // namespace lockstep::train
