#include "train/checkpoint/strict_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "lockstep/error.h"

namespace lockstep::train {

namespace {

using Json = nlohmann::json;

constexpr size_t kMostShown = 60;
constexpr int kMostDepth = 16;

/// Watches a document while it is read.
class Watch {
 public:
  explicit Watch(const std::string& origin) : origin_(origin) {}

  bool look(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMostDepth) throw Error(fmt::format("{}: is nested deeper than {}", origin_, kMostDepth));
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key && !keys_.back().insert(parsed.get_ref<const std::string&>()).second) {
      throw Error(fmt::format("{}: the key {} is there twice", origin_, shown_json(parsed)));
    }
    return true;
  }

 private:
  const std::string& origin_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

std::string shown_json(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
  return text;
}

std::string shown_text(std::string_view text) {
  return shown_json(Json(text.substr(0, kMostShown)));
}

Json parse_strict(std::string_view text, const std::string& origin) {
  if (text.size() > kMostJsonBytes) {
    throw Error(fmt::format("{}: has {} bytes, more than {}", origin, text.size(), kMostJsonBytes));
  }
  // The parser would take it for the end.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw Error(fmt::format("{}: no valid JSON: byte {} is zero", origin, zero));
  }
  Watch watch(origin);
  Json document;
  try {
    document = Json::parse(text, [&](int depth, Json::parse_event_t event, const Json& parsed) {
      return watch.look(depth, event, parsed);
    });
  } catch (const Json::parse_error& error) {
    throw Error(fmt::format("{}: no valid JSON at byte {}", origin, error.byte));
  } catch (const Json::out_of_range&) {
    throw Error(fmt::format("{}: a number is out of range", origin));
  }
  if (!document.is_object()) throw Error(fmt::format("{}: {} is no object", origin, shown_json(document)));
  return document;
}

}  // namespace lockstep::train
