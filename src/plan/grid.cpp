#include "lockstep/plan/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/error.h"
#include "plan/page_width.h"

namespace lockstep::plan {

namespace {

/// What a rank does in a row: by itself, then sends and receives at once.
struct Cell {
  std::vector<std::string> local, out, in;
};

/// `c3`, `c4-5`; `c0@s2` where chunk 0 is not in slot 0.
std::string chunks_text(int chunk, int count, int slot) {
  std::string text = fmt::format("c{}", chunk);
  if (count > 1) text += fmt::format("-{}", int64_t{chunk} + count - 1);
  if (slot != chunk) text += fmt::format("@s{}", slot);
  return text;
}

/// `0..3`, or one rank.
std::string ranks_text(const Places& places) {
  if (places.count == 1 || places.rank_step == 0) return fmt::format("{}", places.rank);
  return fmt::format("{}..{}", places.rank, places.rank + (int64_t{places.count} - 1) * places.rank_step);
}

std::string combine_text(const Step& step, int rank) {
  const auto own = [rank](const Places& places) { return places.rank == rank && places.rank_step == 0; };
  const std::string sum = chunks_text(step.chunk, step.width, step.chunk);
  if (own(step.sources) && own(step.destinations))
    return fmt::format("{} = sum of {}", sum, step.sources.count);
  return fmt::format("{} = sum {} to {}", sum, ranks_text(step.sources), ranks_text(step.destinations));
}

/// Adds a step to its cell. Messages of no slots are not sent, so they are not shown.
void add(Cell& cell, const Step& step, int rank, const Step* before) {
  switch (step.kind) {
    case Kind::kPost:
      cell.local.emplace_back("flag up");
      return;
    case Kind::kWait:
      // One line for waits of a kind.
      if (before != nullptr && before->kind == Kind::kWait && before->flag == step.flag &&
          !cell.local.empty()) {
        cell.local.back() += fmt::format(",{}", step.peer);
      } else {
        cell.local.push_back(fmt::format("wait flag {}: {}", step.flag, step.peer));
      }
      return;
    case Kind::kCopy:
      cell.local.push_back(fmt::format("c{} s{} => s{}", step.chunk, step.from, step.slots.first));
      return;
    case Kind::kCombine:
      cell.local.push_back(combine_text(step, rank));
      return;
    case Kind::kSend:
    case Kind::kRecv:
    case Kind::kRecvReduce:
      break;
  }
  if (step.slots.count == 0) return;
  const std::string what = chunks_text(step.chunk, step.slots.count, step.slots.first);
  if (step.is_send()) {
    cell.out.push_back(fmt::format("->{} {}", step.peer, what));
  } else {
    cell.in.push_back(fmt::format("<-{} {}{}", step.peer, what, step.kind == Kind::kRecvReduce ? " +" : ""));
  }
}

using Row = std::vector<Cell>;  // by rank

size_t longest(const std::vector<std::string>& texts) {
  size_t most = 0;
  for (const auto& text : texts) most = std::max(most, text.size());
  return most;
}

/// How wide a column is, and whether sends and receives stand beside each other in it.
struct Columns {
  size_t out = 0, in = 0, local = 0;
  bool beside = true;

  size_t width() const {
    const size_t messages = beside ? out + in + (out > 0 && in > 0 ? 1 : 0) : std::max(out, in);
    return std::max({messages, local, size_t{7}});  // `rank 15`
  }
};

Columns measure(const std::map<int, Row>& rows, size_t ranks) {
  Columns columns;
  for (const auto& [number, row] : rows) {
    for (const auto& cell : row) {
      columns.out = std::max(columns.out, longest(cell.out));
      columns.in = std::max(columns.in, longest(cell.in));
      columns.local = std::max(columns.local, longest(cell.local));
    }
  }
  columns.beside = 5 + ranks * (columns.width() + 3) <= kPageWidth;
  return columns;
}

/// The lines of a cell's messages.
std::vector<std::string> message_lines(const Cell& cell, const Columns& columns) {
  std::vector<std::string> lines;
  if (!columns.beside) {
    lines = cell.out;
    lines.insert(lines.end(), cell.in.begin(), cell.in.end());
    return lines;
  }
  const size_t gap = columns.out > 0 ? columns.out + 1 : 0;
  for (size_t i = 0; i < std::max(cell.out.size(), cell.in.size()); ++i) {
    const std::string out = i < cell.out.size() ? cell.out[i] : "";
    lines.push_back(i < cell.in.size() ? fmt::format("{:<{}}{}", out, gap, cell.in[i]) : out);
  }
  return lines;
}

void append_line(std::string& text, const std::string& label, const std::vector<std::string>& cells,
                 size_t width) {
  std::string line = fmt::format("{:>4} ", label);
  for (const auto& cell : cells) line += fmt::format("| {:<{}} ", cell, width);
  line.erase(line.find_last_not_of(' ') + 1);
  text += line + "\n";
}

void append_row(std::string& text, int number, const Row& row, const Columns& columns) {
  size_t local = 0, messages = 0;
  std::vector<std::vector<std::string>> lines;
  for (const auto& cell : row) {
    lines.push_back(message_lines(cell, columns));
    local = std::max(local, cell.local.size());
    messages = std::max(messages, lines.back().size());
  }
  for (size_t i = 0; i < local + messages; ++i) {
    std::vector<std::string> cells;
    for (size_t rank = 0; rank < row.size(); ++rank) {
      const auto& source = i < local ? row[rank].local : lines[rank];
      const size_t at = i < local ? i : i - local;
      cells.push_back(at < source.size() ? source[at] : "");
    }
    append_line(text, i == 0 ? fmt::format("{}", number) : "", cells, columns.width());
  }
}

std::string legend(const std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kSigns[] = {
      {"->", "->N send to rank N"},
      {"<-", "<-N receive from rank N"},
      {" +", "+ add to one's own"},
      {" c", "cK chunk K"},
      {"@s", "@sK kept in slot K"},
      {"=>", "sA => sB copy within"},
      {"flag up", "flag up: what was done may be seen"},
      {" to ", "sum A..B to C..D: of and to ranks"}};
  std::string found;
  for (const auto& [sign, meaning] : kSigns) {
    if (text.find(sign) != std::string::npos)
      found += fmt::format("{}{}", found.empty() ? "" : "; ", meaning);
  }
  return found.empty() ? "" : fmt::format("({})\n", found);
}

void check_size(const Plan& plan) {
  int64_t steps = 0;
  for (int rank = 0; rank < plan.world; ++rank) steps += plan.size(rank);
  if (plan.world <= kMostGridRanks && steps <= kMostGridSteps) return;
  throw UsageError(
      fmt::format("a grid of {} ranks and {} steps is too large to read (at most {} and {}); hint: "
                  "draw a smaller world, or print the text form",
                  plan.world, steps, kMostGridRanks, kMostGridSteps));
}

}  // namespace

std::string grid(const Plan& plan) {
  check_size(plan);
  const auto numbers = grid_rows(plan);
  std::map<int, Row> rows;
  for (int rank = 0; rank < plan.world; ++rank) {
    const auto steps = plan.steps(rank);
    for (size_t i = 0; i < steps.size(); ++i) {
      auto& row = rows.try_emplace(numbers[static_cast<size_t>(rank)][i], static_cast<size_t>(plan.world))
                      .first->second;
      add(row[static_cast<size_t>(rank)], steps[i], rank, i > 0 ? &steps[i - 1] : nullptr);
    }
  }
  const Columns columns = measure(rows, static_cast<size_t>(plan.world));
  std::vector<std::string> names;
  for (int rank = 0; rank < plan.world; ++rank) names.push_back(fmt::format("rank {}", rank));
  std::string text;
  append_line(text, "", names, columns.width());
  for (const auto& [number, row] : rows) append_row(text, number, row, columns);
  return text + legend(text);
}

}  // namespace lockstep::plan
