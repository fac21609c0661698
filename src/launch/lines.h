#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// Cuts a stream of bytes into lines. A line longer than kLongest is cut there, so that memory stays bounded.
class LineSplitter {
 public:
  static constexpr size_t kLongest = 1 << 20;
  using TakeLine = std::function<void(std::string_view line)>;  ///< The line without its newline.

  void feed(std::string_view bytes, const TakeLine& take);
  /// Gives out what stands after the last newline, if anything.
  void finish(const TakeLine& take);

 private:
  std::string rest_;
};

/// What a terminal would show of a line that rewrites itself by carriage returns: the text after the last
/// one.
std::string_view visible_part(std::string_view line);

/// The last line of a text that is not empty, without its newline.
std::string_view last_line(std::string_view text);

}  // namespace lockstep::launch
