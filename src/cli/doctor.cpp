#include <fmt/color.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/define.h"
#include "cli/doctor/rows.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/terminal.h"

namespace lockstep::cli {

namespace {

using doctor::Facts;
using doctor::Row;
using doctor::Status;

int64_t count(const std::vector<Row>& rows, Status status) {
  return std::count_if(rows.begin(), rows.end(), [&](const Row& row) { return row.status == status; });
}

std::string status_cell(Status status, bool colour) {
  std::string cell = fmt::format("{:<8}", doctor::to_string(status));
  if (!colour) return cell;
  const auto tint = status == Status::kOk        ? fmt::terminal_color::green
                    : status == Status::kWarning ? fmt::terminal_color::yellow
                                                 : fmt::terminal_color::red;
  return fmt::format("{}", fmt::styled(cell, fmt::fg(tint)));
}

void print_table(const std::vector<Row>& rows, const Facts& facts) {
  const bool colour = use_colour(STDOUT_FILENO);
  for (const auto& row : rows) {
    fmt::print("{} {:<17} {}\n", status_cell(row.status, colour), row.name, row.value);
    if (!row.mend.empty()) fmt::print("{:8} {:<17} {}\n", "", "  mend with", row.mend);
  }
  fmt::print("\n{} ok, {}, {}\n", count(rows, Status::kOk),
             doctor::count_text(count(rows, Status::kWarning), "warning"),
             doctor::count_text(count(rows, Status::kFault), "fault"));
  fmt::print(
      "\nlockstep run sets threads and kernels by itself. For a program that you start without it:\n  {}\n"
      "(all threads to one process; divide them when you start several)\n",
      doctor::export_command(facts));
}

nlohmann::json to_json(const std::vector<Row>& rows, const Facts& facts) {
  auto list = nlohmann::json::array();
  for (const auto& row : rows) {
    nlohmann::json entry = {
        {"name", row.name}, {"status", doctor::to_string(row.status)}, {"value", row.value}};
    if (!row.mend.empty()) entry["mend"] = row.mend;
    if (!row.numbers.empty()) entry["numbers"] = row.numbers;
    if (!row.names.empty()) entry["names"] = row.names;
    list.push_back(std::move(entry));
  }
  return {{"rows", std::move(list)},
          {"ok", count(rows, Status::kOk)},
          {"warnings", count(rows, Status::kWarning)},
          {"faults", count(rows, Status::kFault)},
          {"export", doctor::export_command(facts)}};
}

}  // namespace

Action define_doctor(Flags flags) {
  const auto json = std::make_shared<JsonOutput>();
  json->add_to(flags);
  return [json](const Invocation&) {
    const Facts facts = doctor::gather();
    const std::vector<Row> rows = doctor::all_rows(facts);
    if (json->prints_text()) print_table(rows, facts);
    json->write(to_json(rows, facts));
    return count(rows, Status::kFault) > 0 ? kExitFailure : 0;
  };
}

}  // namespace lockstep::cli
