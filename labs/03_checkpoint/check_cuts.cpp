#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "03_checkpoint/parts.h"

namespace lab::checkpoint {

namespace {

using Call = SimulatedDisk::Call;

/// What load found after the power had gone in one place of a save, and one of the things had survived that
/// may.
struct Trial {
  size_t call = 0;   ///< Calls that were done.
  size_t place = 0;  ///< Bytes of the next one, an append.
  bool has_returned = false;
  bool is_swallowed = false;  ///< It returned although the power had gone.
  bool has_unsynced_names = false;
  std::string outcome;
  std::optional<Bytes> found;
  std::string holder;          ///< A file that held the old or the new state.
  std::optional<Bytes> again;  ///< After the next save.
};

/// A save whose power was cut everywhere.
struct Save {
  std::string start;            ///< What had happened before; "" if nothing special.
  std::set<std::string> kept;   ///< Files that were there.
  std::optional<Bytes> before;  ///< What load gave then.
  Bytes now;
  std::vector<Call> calls;
  std::vector<Trial> trials;

  std::string when(const Trial& trial) const {
    if (trial.has_returned) return "after save had returned";
    const auto& call = calls[trial.call];
    return trial.place > 0 ? fmt::format("in call {} of save ({}), after {}", trial.call + 1, call.text,
                                         counted(static_cast<int64_t>(trial.place), "byte"))
                           : fmt::format("before call {} of save ({})", trial.call + 1, call.text);
  }
};

/// Cuts the power at every call of one save, and within its appends; looks at all that may be there then. If
/// `later` is given, saves it over what the dead process left. `use` sees every disk that is left.
template <typename Use>
Save cut_everywhere(const Seam& seam, const SimulatedDisk& start, const std::string& story,
                    const std::optional<Bytes>& before, const Bytes& now, const std::optional<Bytes>& later,
                    const Use& use) {
  Save save{story, {}, before, now, {}, {}};
  for (const auto& name : start.names()) save.kept.insert(name);
  SimulatedDisk dry = start.synced_copy();
  seam.save(dry, kName, now);
  save.calls = dry.calls();
  for (size_t k = 0; k <= save.calls.size(); ++k) {
    const size_t bytes = k == save.calls.size() ? 0 : save.calls[k].bytes;
    std::set<size_t> places = {0};
    for (const size_t place : {size_t{1}, bytes / 3, bytes / 2, bytes - 8, bytes - 1}) {
      if (place > 0 && place < bytes && (later || place == bytes / 2)) places.insert(place);
    }
    for (const size_t place : places) {
      SimulatedDisk disk = start.synced_copy();
      disk.cut_after(k, place);
      Trial trial{.call = k, .place = place};
      try {
        seam.save(disk, kName, now);
        trial.has_returned = true;
      } catch (const PowerCut&) {
      }
      trial.is_swallowed = trial.has_returned && disk.is_dead();
      trial.has_unsynced_names = disk.has_unsynced_names();
      for (auto& outcome : disk.outcomes()) {
        tell_progress(fmt::format("load after a power cut {}", save.when(trial)));
        trial.outcome = outcome.text;
        trial.found = seam.load(outcome.disk, kName);
        trial.holder = holder_of(outcome.disk, now);
        if (trial.holder.empty()) trial.holder = holder_of(outcome.disk, before);
        use(outcome.disk, save, trial);
        if (later) {
          seam.save(outcome.disk, kName, *later);
          trial.again = seam.load(outcome.disk, kName);
        }
        save.trials.push_back(trial);
      }
    }
  }
  return save;
}

[[noreturn]] void fail_for_loss(Checker& checker, const Save& save, const Trial& trial,
                                const std::string& found) {
  const auto what =
      fmt::format("{}{}power cut {}; {}: load gives {}", save.start,
                  save.start.empty() ? "" : "; then a save, and a ", save.when(trial), trial.outcome, found);
  const auto done = std::span(save.calls).first(trial.call);
  for (const auto& call : done) {
    if (call.empties && save.kept.contains(call.text.substr(std::string("create ").size()))) {
      checker.fail(
          "written in place", what,
          "create() empties a file that held a good checkpoint, before there is a new one. Write to a file "
          "with another name, and rename it when it is safe.");
    }
  }
  if (trial.has_returned && trial.has_unsynced_names && (found == "the old state" || found == "nothing")) {
    checker.fail(
        "folder not synced", what,
        "The contents are on the disk, the new name is not: a rename changes the folder, and the folder has "
        "an fsync of its own. Without it save() promises what a power cut takes back.");
  }
  if (std::ranges::any_of(done, &Call::is_unsynced)) {
    checker.fail(
        "rename without fsync", what,
        "The disk may get the new name before it gets the contents. fsync the file, then rename it.");
  }
  if (!trial.holder.empty()) {
    checker.fail(
        "load looks elsewhere", fmt::format("{}, but the file {} holds a state, whole", what, trial.holder),
        "Nothing is lost: load does not look at this file, or not in the right order. After a cut in "
        "the middle of save, the newest state may be under any name that save uses.");
  }
  if (std::ranges::any_of(done, &Call::removes)) {
    checker.fail(
        "removed too early", what,
        "The old checkpoint was removed before the new one was safe under its name. rename replaces at "
        "once; nothing needs to be removed.");
  }
  if (!save.start.empty()) {
    checker.fail(
        "lost by the second crash", what,
        "What the first crash or the damage left was the only way back, and save replaced it before "
        "the new state was safe. Before you rename a file over an older one, look whether it is whole: "
        "only what unseal() accepts may replace the checkpoint before it.");
  }
  const std::string name = found == "nothing"         ? "nothing left"
                           : found == "the old state" ? "save forgotten"
                                                      : "torn checkpoint";
  checker.fail(
      name, what,
      "The order is: write another file, fsync it, rename it, fsync the folder. What may be missing at "
      "this point?");
}

void expect_save(Checker& checker, const Save& save, const std::optional<Bytes>& later) {
  for (const auto& trial : save.trials) {
    const std::string name = text_of(trial.found, save.before, save.now);
    checker.expect(
        !trial.is_swallowed, "failure swallowed",
        fmt::format("{}power went during save, and save returned as if nothing had happened; load gives {}",
                    save.start.empty() ? "the " : save.start + "; then the ", name),
        "Who catches every exception says that a state is saved which is not. Let it through.");
    const bool is_old = save.before ? name == "the old state" : name == "nothing";
    if (!(name == "the new state" || (is_old && !trial.has_returned)))
      fail_for_loss(checker, save, trial, name);
    if (!later) continue;
    checker.expect(trial.again == later, "stuck after a crash",
                   fmt::format("power cut {}; {}; then the next save: load gives {}", save.when(trial),
                               trial.outcome, text_of(trial.again, save.now, *later)),
                   "A file that a dead process has left must not disturb the next save.");
  }
}

/// A line for each call: what load finds if the power goes just before it.
void note_calls(Checker& checker, const Save& save) {
  checker.note(fmt::format("{:<38} {}", "the power goes just before ...", "load finds"));
  for (size_t k = 0; k <= save.calls.size(); ++k) {
    std::set<std::string> finds;
    for (const auto& trial : save.trials) {
      if (trial.call == k) finds.insert(text_of(trial.found, save.before, save.now));
    }
    checker.note(fmt::format("{:<38} {}", k == save.calls.size() ? "save has returned" : save.calls[k].text,
                             fmt::join(finds, " or ")));
  }
}

/// The run to look at: the calls of a save, one after the other.
void show_calls(Checker& checker, const std::vector<Call>& calls) {
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

std::string contents_of(const SimulatedDisk& disk) {
  std::string text;
  for (const auto& name : disk.names()) {
    const Bytes bytes = *disk.read(name);
    text += fmt::format("{} {} ", name, bytes.size());
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return text;
}

constexpr auto kIgnore = [](auto&&...) {};

}  // namespace

void check_cuts(const Seam& seam, Checker& checker) {
  size_t tried = 0;
  for (const uint64_t number : {1, 2, 0}) {  // the very first save last: less is known of what it does
    const Bytes now = state_number(checker, number), later = state_number(checker, number + 1);
    const auto save = checker.in_child([&] {
      SimulatedDisk disk;
      std::optional<Bytes> before;
      for (uint64_t earlier = 0; earlier < number; ++earlier)
        seam.save(disk, kName, *(before = state_number(checker, earlier)));
      return cut_everywhere(seam, disk.synced_copy(), "", before, now, later, kIgnore);
    });
    if (number == 2) {
      show_calls(checker, save.calls);
      note_calls(checker, save);
    }
    expect_save(checker, save, later);
    tried += save.trials.size();
  }
  checker.proved(
      fmt::format("{} power cuts, before every call and within writes, with all, half or nothing of what was "
                  "not synced: load finds the old state or the new one, whole; once save has returned, the "
                  "new one",
                  tried));
}

void check_second_crash(const Seam& seam, Checker& checker) {
  const Bytes third = state_number(checker, 5), fourth = state_number(checker, 6);
  const auto first = first_saves(seam, checker);
  const auto saves = checker.in_child([&] {
    std::vector<Save> all;
    std::set<std::string> seen;
    SimulatedDisk disk;
    seam.save(disk, kName, state_number(checker, 3));
    seam.save(disk, kName, state_number(checker, 4));
    cut_everywhere(seam, disk.synced_copy(), "", state_number(checker, 4), third, std::nullopt,
                   [&](const SimulatedDisk& left, const Save& save, const Trial& trial) {
                     if (!seen.insert(contents_of(left)).second) return;
                     all.push_back(cut_everywhere(
                         seam, left, fmt::format("power cut {}; {}", save.when(trial), trial.outcome),
                         trial.found, fourth, std::nullopt, kIgnore));
                   });
    for (const auto& [damaged, text] : damaged_disks(seam, checker, first)) {
      all.push_back(cut_everywhere(seam, damaged, "two states were saved, " + text, seam.load(damaged, kName),
                                   third, std::nullopt, kIgnore));
    }
    return all;
  });
  size_t tried = 0;
  for (const auto& save : saves) {
    expect_save(checker, save, std::nullopt);
    tried += save.trials.size();
  }
  checker.proved(fmt::format(
      "{} power cuts in the save after a power cut or after damage: what load had found is not lost", tried));
}

}  // namespace lab::checkpoint
