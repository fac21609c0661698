#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "03_checkpoint/parts.h"

namespace lab::checkpoint {

namespace {

/// What there was before the save that is cut, and how the cut is told.
struct Cut {
  std::optional<Bytes> before;
  Bytes now;
  bool has_returned = false;
  std::string when;
  bool has_unsynced_names = false;
};

[[noreturn]] void tell_loss(Checker& checker, const std::vector<SimulatedDisk::Call>& calls, const Cut& cut,
                            const std::string& outcome, const std::string& found,
                            const std::set<std::string>& kept) {
  const auto what = fmt::format("power cut {}; {}: load gives {}", cut.when, outcome, found);
  for (const auto& call : calls) {
    if (call.empties && kept.contains(call.text)) {
      checker.fail(
          "written in place", what,
          "create() empties the file that held the last good checkpoint, before there is a new one. Write "
          "to a file with another name, and rename it when it is safe.");
    }
  }
  if (cut.has_returned && cut.has_unsynced_names && (found == "the old state" || found == "nothing")) {
    checker.fail(
        "folder not synced", what,
        "The contents are on the disk, the new name is not: a rename changes the folder, and the folder has "
        "an fsync of its own. Without it save() promises what a power cut takes back.");
  }
  if (std::ranges::any_of(calls, &SimulatedDisk::Call::is_unsynced)) {
    checker.fail(
        "rename without fsync", what,
        "The disk may get the new name before it gets the contents. fsync the file, then rename it.");
  }
  if (std::ranges::any_of(calls, &SimulatedDisk::Call::removes)) {
    checker.fail(
        "removed too early", what,
        "The old checkpoint was removed before the new one was safe under its name. rename replaces at "
        "once; nothing needs to be removed.");
  }
  const std::string name = found == "nothing"         ? "nothing left"
                           : found == "the old state" ? "save forgotten"
                                                      : "torn checkpoint";
  checker.fail(
      name, what,
      "The order is: write another file, fsync it, rename it, fsync the folder. What may be missing at "
      "this point?");
}

/// Cuts the power at every call of one save, and in the middle of its appends; looks at all that may be there
/// then. Returns a line for each call: what load finds if the power goes just before it.
std::vector<std::string> check_cuts_of(const Seam& seam, Checker& checker, const SimulatedDisk& start,
                                       const std::optional<Bytes>& before, uint64_t number, int64_t& tried) {
  const Bytes now = state_number(seam, checker, number), later = state_number(seam, checker, number + 1);
  SimulatedDisk dry = start.synced_copy();
  std::set<std::string> kept;  // what a call would be named that empties a file of an earlier save
  for (const auto& name : start.names()) kept.insert("create " + name);
  seam.save(dry, kName, now);
  std::vector<std::string> lines;
  for (size_t k = 0; k <= dry.calls().size(); ++k) {
    const bool has_returned = k == dry.calls().size();
    const size_t bytes = has_returned ? 0 : dry.calls()[k].bytes;
    std::set<size_t> places = {0};
    for (const size_t place : {size_t{1}, bytes / 3, bytes / 2, bytes - 8, bytes - 1}) {
      if (place > 0 && place < bytes) places.insert(place);
    }
    std::set<std::string> finds;
    for (const size_t place : places) {
      SimulatedDisk disk = start.synced_copy();
      disk.cut_after(k, place);
      Cut cut{.before = before, .now = now};
      try {
        seam.save(disk, kName, now);
        cut.has_returned = true;
      } catch (const PowerCut&) {
      }
      cut.when = cut.has_returned ? "after save had returned"
                 : place > 0      ? fmt::format("in call {} of save ({}), after {} of its bytes", k + 1,
                                                dry.calls()[k].text, place)
                                  : fmt::format("before call {} of save ({})", k + 1, dry.calls()[k].text);
      cut.has_unsynced_names = disk.has_unsynced_names();
      for (auto& outcome : disk.outcomes()) {
        ++tried;
        tell_progress(fmt::format("load after a power cut {}", cut.when));
        const auto found = seam.load(outcome.disk, kName);
        const std::string name = told(found, before, now);
        const bool is_old = before ? name == "the old state" : name == "nothing";
        if (!(name == "the new state" || (is_old && !cut.has_returned)))
          tell_loss(checker, disk.calls(), cut, outcome.text, name, kept);
        finds.insert(name);
        // The program starts again, and saves over what the dead one left.
        seam.save(outcome.disk, kName, later);
        const auto again = seam.load(outcome.disk, kName);
        checker.expect(again && *again == later, "stuck after a crash",
                       fmt::format("power cut {}; {}; then the next save: load gives {}", cut.when,
                                   outcome.text, told(again, now, later)),
                       "A file that a dead process has left must not disturb the next save.");
      }
    }
    lines.push_back(fmt::format("{:<38} {}", has_returned ? "save has returned" : dry.calls()[k].text,
                                fmt::join(finds, " or ")));
  }
  return lines;
}

/// The run to look at: the calls of a save, one after the other.
void show_calls(Checker& checker, const std::vector<SimulatedDisk::Call>& calls) {
  Report report;
  report.time_us = static_cast<double>(calls.size());
  report.done_us = {report.time_us};
  report.bytes = report.messages = {{0}};
  for (const auto& call : calls) {
    const auto start = static_cast<double>(report.events.size());
    report.events.push_back(
        {.kind = Event::Kind::kCompute, .start_us = start, .end_us = start + 1, .text = call.text});
  }
  checker.show(std::move(report));
}

}  // namespace

void check_cuts(const Seam& seam, Checker& checker) {
  int64_t tried = 0;
  for (const uint64_t number : {1, 2, 0}) {  // the very first save last: less is known of what it does
    SimulatedDisk disk;
    std::optional<Bytes> before;
    for (uint64_t earlier = 0; earlier < number; ++earlier) {
      before = state_number(seam, checker, earlier);
      disk.forget_calls();
      seam.save(disk, kName, *before);
    }
    if (number == 2) show_calls(checker, disk.calls());
    const auto lines = check_cuts_of(seam, checker, disk, before, number, tried);
    if (number != 2) continue;
    checker.note(fmt::format("{:<38} {}", "the power goes just before ...", "load finds"));
    for (const auto& line : lines) checker.note(line);
  }
  checker.proved(
      fmt::format("{} power cuts, before every call and within writes, with all, half or nothing of what was "
                  "not synced: load finds the old state or the new one, whole; once save has returned, the "
                  "new one",
                  tried));
}

}  // namespace lab::checkpoint
