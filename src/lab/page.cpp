#include "lab/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <vector>

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

/// The text of a summary, which is HTML.
std::string without_tags(std::string text) {
  for (const std::string tag : {"<code>", "</code>"}) {
    for (size_t at = 0; (at = text.find(tag, at)) != std::string::npos;) text.replace(at, tag.size(), "`");
  }
  return text;
}

/// A command and its arguments, which a shell joins again where the terminal is too narrow for them.
std::string broken_command(const std::string& line, int columns) {
  std::string text = wrapped(line, columns - 2, 6);
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3) text.insert(at, " \\");
  return text;
}

using Row = std::vector<std::string>;

/// The cells of `| a | b |`.
Row cells_of(const std::string& line) {
  Row cells;
  std::istringstream stream(line.substr(1));
  for (std::string cell; std::getline(stream, cell, '|');) {
    const auto begin = cell.find_first_not_of(' ');
    const auto end = cell.find_last_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : readable(cell.substr(begin, end - begin + 1)));
  }
  return cells;
}

/// Widths of columns that are as wide as their longest cell, or, where that is more than a line holds, so
/// wide that the widest give way first.
std::vector<size_t> widths_of(const std::vector<Row>& rows, size_t columns) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t k = 0; k < row.size(); ++k) widths[k] = std::max(widths[k], row[k].size());
  }
  size_t all = 2 * widths.size();
  for (const size_t width : widths) all += width;
  for (; all > columns; --all) --*std::ranges::max_element(widths);
  return widths;
}

/// A row as one line, or as several if a cell is longer than its column.
std::string row_text(const Row& row, const std::vector<size_t>& widths) {
  std::vector<std::istringstream> cells;
  for (size_t k = 0; k < row.size(); ++k) cells.emplace_back(wrapped(row[k], static_cast<int>(widths[k]), 0));
  std::string text;
  for (bool is_over = false; !is_over;) {
    std::string line;
    is_over = true;
    for (size_t k = 0; k < cells.size(); ++k) {
      std::string part;
      std::getline(cells[k], part);
      is_over = is_over && cells[k].peek() == std::istringstream::traits_type::eof();
      part.resize(std::max(part.size(), widths[k]), ' ');
      line += "  " + part;
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

/// A table: its head, a line, its rows.
std::string table_text(const std::vector<Row>& rows, const Style& style) {
  const auto widths = widths_of(rows, static_cast<size_t>(style.columns));
  std::string text, line;
  for (const size_t width : widths) line += "  " + std::string(width, '-');
  for (const auto& row : rows) {
    text += &row == &rows.front() ? style.strong(row_text(row, widths)) + line + '\n' : row_text(row, widths);
  }
  return text;
}

/// Writes a page line by line; a paragraph or a table is written when it is whole.
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
      page_ += "    " + (text.starts_with("$ ") ? broken_command(text, style_.columns - 4) : text) + '\n';
    } else if (text.starts_with("<details>")) {
      end_paragraph();
      const auto question = without_tags(between(text, "<summary>", "</summary>"));
      page_ += style_.strong(wrapped("? " + question, style_.columns, 2)) + '\n';
      is_hidden_ = !answers_;
    } else if (text == "</details>") {
      end_paragraph();
      is_hidden_ = false;
    } else if (text.starts_with("#")) {
      end_paragraph();
      page_ += style_.strong(text.substr(text.find_first_not_of("# "))) + '\n';
    } else if (text.starts_with("|")) {
      if (!text.starts_with("|--")) table_.push_back(cells_of(text));
    } else if (text.empty() || text.starts_with("    ")) {
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
    if (!table_.empty()) page_ += table_text(table_, style_);
    paragraph_.clear();
    table_.clear();
    indent_ = 0;
  }

  const Style& style_;
  bool answers_;
  std::string page_;
  std::string paragraph_;
  std::vector<Row> table_;
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

std::string one_more_hint(Desk& desk, const Lesson& lesson, const Style& style) {
  const auto hints = hints_of(lesson);
  auto& shown = desk.state.hints[lesson.number];
  shown = std::min(shown + 1, static_cast<int>(hints.size()));
  desk.save();
  std::string text;
  for (int k = 1; k <= shown; ++k) {
    text += fmt::format("hint {} of {}\n{}\n", k, hints.size(),
                        page_text(hints[static_cast<size_t>(k) - 1], style, true));
  }
  if (shown < static_cast<int>(hints.size()))
    text += fmt::format("one more: lockstep lab hint {}\n", lesson.number);
  return text;
}

}  // namespace lockstep::lab
