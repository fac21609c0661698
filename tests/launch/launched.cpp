#include "launch/launched.h"

#include <sstream>

namespace lockstep::test {

std::vector<std::string> launched(const std::vector<std::string>& flags,
                                  const std::vector<std::string>& words) {
  std::vector<std::string> command = {LOCKSTEP_COMMAND, "run"};
  command.insert(command.end(), flags.begin(), flags.end());
  command.insert(command.end(), {"--", LOCKSTEP_ACTOR});
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

std::string line_with(const std::string& text, const std::string& part) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(part) != std::string::npos) return line;
  }
  return "";
}

int count_lines_with(const std::string& text, const std::string& part) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += line.find(part) != std::string::npos ? 1 : 0;
  return count;
}

}  // namespace lockstep::test
