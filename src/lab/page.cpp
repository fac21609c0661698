#include "lab/page.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace lockstep::lab {

namespace {

/// The text between two tags on one line.
std::string between(const std::string& line, const std::string& open, const std::string& close) {
  const auto begin = line.find(open);
  const auto end = line.rfind(close);
  if (begin == std::string::npos || end == std::string::npos) return line;
  return line.substr(begin + open.size(), end - begin - open.size());
}

bool is_between_blanks(const std::string& text, size_t at) {
  return at > 0 && text[at - 1] == ' ' && at + 1 < text.size() && text[at + 1] == ' ';
}

/// A paragraph without the signs that only a browser understands: emphasis, and the address of a link within
/// the project.
std::string readable(const std::string& text) {
  std::string plain;
  bool in_code = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '`') in_code = !in_code;
    if (in_code) {
      plain += text[at];
    } else if (text[at] == '*' && at + 1 < text.size() && text[at + 1] == '*') {
      ++at;
    } else if (text[at] == '*' && !is_between_blanks(text, at)) {
      continue;
    } else if (text.compare(at, 2, "](") == 0) {
      at = std::min(text.find(')', at), text.size());
    } else if (text[at] != '[') {
      plain += text[at];
    }
  }
  return plain;
}

/// Writes a page line by line; a paragraph is broken when it is whole.
class Writer {
 public:
  Writer(const Style& style, bool answers) : style_(style), answers_(answers) {}

  void line(const std::string& text) {
    if (text.starts_with("```")) {
      end_paragraph();
      in_code_ = !in_code_;
    } else if (is_hidden_ && text != "</details>") {
      return;
    } else if (in_code_) {
      page_ += "    " + text + '\n';
    } else if (text.starts_with("<details>")) {
      end_paragraph();
      page_ += style_.strong("? " + between(text, "<summary>", "</summary>")) + '\n';
      is_hidden_ = !answers_;
    } else if (text == "</details>") {
      end_paragraph();
      is_hidden_ = false;
    } else if (text.starts_with("#")) {
      end_paragraph();
      page_ += style_.strong(text.substr(text.find_first_not_of("# "))) + '\n';
    } else if (text.empty() || text.starts_with("    ") || text.starts_with("|")) {
      end_paragraph();
      page_ += text + '\n';
    } else {
      const bool is_item =
          text.starts_with("- ") || (text.size() > 2 && std::isdigit(text[0]) != 0 && text[1] == '.');
      if (is_item) end_paragraph();
      if (is_item) indent_ = text[0] == '-' ? 2 : 3;
      paragraph_ += text + ' ';
    }
  }

  std::string finish() {
    end_paragraph();
    return std::move(page_);
  }

 private:
  void end_paragraph() {
    if (!paragraph_.empty()) page_ += wrapped(readable(paragraph_), style_.columns, indent_) + '\n';
    paragraph_.clear();
    indent_ = 0;
  }

  const Style& style_;
  bool answers_;
  std::string page_;
  std::string paragraph_;
  int indent_ = 0;
  bool in_code_ = false;
  bool is_hidden_ = false;
};

}  // namespace

std::string page_text(const std::string& markdown, const Style& style, bool answers) {
  Writer writer(style, answers);
  std::istringstream text(markdown);
  for (std::string line; std::getline(text, line);) writer.line(line);
  std::string page = writer.finish();
  if (!answers && markdown.find("<details>") != std::string::npos)
    page += '\n' + style.dim("answers: the same with --answers") + '\n';
  return page;
}

}  // namespace lockstep::lab
