#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

#include "lockstep/trace/writer.h"

namespace lockstep::trace {

namespace {

struct Table {
  std::mutex mutex;
  std::deque<std::string> texts;  // By id; a deque's elements stay where they are.
  std::unordered_map<std::string_view, uint32_t> ids;
};

Table& table() {
  static Table& table = *new Table;  // Never destroyed: threads may still write while the process ends.
  return table;
}

}  // namespace

Name::Name(std::string_view text) {
  const std::lock_guard lock(table().mutex);
  auto& [mutex, texts, ids] = table();
  auto found = ids.find(text);
  if (found == ids.end() && texts.size() + 1 >= kMostNames) {
    text = "(too many names)";
    found = ids.find(text);
  }
  if (found == ids.end()) {
    texts.emplace_back(text);
    found = ids.emplace(texts.back(), static_cast<uint32_t>(texts.size() - 1)).first;
  }
  id_ = found->second;
}

std::string_view Name::text() const {
  const std::lock_guard lock(table().mutex);
  return table().texts[id_];
}

}  // namespace lockstep::trace
