#pragma once

#include <string>

namespace lockstep::cli {

/// Lines of text as comments of a plan's text form, so that what people want to know can follow it.
inline std::string as_comment(const std::string& text) {
  std::string comment;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    comment += "# " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return comment;
}

}  // namespace lockstep::cli
