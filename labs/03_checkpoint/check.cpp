#include "03_checkpoint/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "03_checkpoint/parts.h"
#include "lab/packing.h"

namespace lab::checkpoint {

Bytes state_number(const Checker& checker, uint64_t number) {
  Bytes bytes(224 + 3 * ((number + 98) % 100));  // number 2, which is shown, has the training's own length
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(checker.draw(1000 * number + i) & 0xff);
  return bytes;
}

std::string text_of(const std::optional<Bytes>& found, const std::optional<Bytes>& before, const Bytes& now) {
  if (!found) return "nothing";
  if (*found == now) return "the new state";
  if (before && *found == *before) return "the old state";
  return fmt::format("{} that are neither the old state nor the new one",
                     counted(static_cast<int64_t>(found->size()), "byte"));
}

std::string holder_of(const SimulatedDisk& disk, const std::optional<Bytes>& state) {
  if (!state) return "";
  for (const auto& name : disk.names()) {
    const Bytes bytes = *disk.read(name);
    if (bytes == *state || unseal(bytes) == state) return name;
  }
  return "";
}

namespace {

/// States of several sizes and ages, with 64 bits in use everywhere.
std::vector<TrainState> states_to_restore(const Checker& checker) {
  std::vector<TrainState> states;
  for (const int at : {1, 17, 40, 0}) {
    auto& state = states.emplace_back(start_training(checker.seed()));
    for (int i = 0; i < at; ++i) train_step(state);
  }
  for (const uint64_t i : {0, 1, 2}) {
    auto& state = states.emplace_back(start_training(checker.draw(20 + i) | uint64_t{1} << 63));
    const auto count = static_cast<size_t>(checker.draw_between(30 + i, 1, i == 2 ? 9999 : 99));
    state.weights.assign(count, 0);
    state.momentum.assign(count, 0);
    for (int64_t done = checker.draw_between(40 + i, 3, 9); done > 0; --done) train_step(state);
    if (i == 1) state.momentum[0] = 0;
    state.step =
        i == 0 ? checker.draw_between(50, 257, 65'000) : checker.draw_between(50 + i, 1LL << 33, 1LL << 40);
  }
  return states;
}

/// What the next 20 losses say about a restored state.
std::string losses_after(TrainState state, TrainState restored) {
  const int64_t at = state.step;
  restored.weights.resize(state.weights.size());
  restored.momentum.resize(state.weights.size());
  for (int i = 1; i <= 20; ++i) {
    const double expected = train_step(state), found = train_step(restored);
    if (std::memcmp(&expected, &found, sizeof found) != 0)
      return fmt::format("the loss of step {} is {:.6g}, without the interruption {:.6g}", at + i, found,
                         expected);
  }
  return "no loss of the next 20 steps differs";
}

bool is_truncated(int64_t found, int64_t expected) {
  return found == static_cast<int32_t>(expected) || found == static_cast<int16_t>(expected) ||
         found == static_cast<uint8_t>(expected);
}

void check_state(const Seam& seam, Checker& checker) {
  const auto states = states_to_restore(checker);
  const auto saved = checker.in_child([&] {
    std::vector<Bytes> all;
    for (const auto& state : states) {
      tell_progress(fmt::format("to_bytes after step {}", state.step));
      all.push_back(seam.to_bytes(state));
    }
    return all;
  });
  // Another process, as after a crash: what only lived in memory is gone.
  const auto restored = checker.in_child([&] {
    std::vector<TrainState> all;
    for (size_t i = 0; i < states.size(); ++i) {
      tell_progress(
          fmt::format("from_bytes of what was saved after step {}, in a new process", states[i].step));
      all.push_back(seam.from_bytes(saved[i]));
    }
    return all;
  });
  for (size_t i = 0; i < states.size(); ++i) {
    const TrainState &original = states[i], &back = restored[i];
    const auto what = [&](const std::string& found) {
      return fmt::format("saved after step {} and restored in a new process: {}; {}", original.step, found,
                         losses_after(original, back));
    };
    const bool has_weights = std::ranges::any_of(back.weights, [](float x) { return x != 0; });
    const bool has_momentum = std::ranges::any_of(back.momentum, [](float x) { return x != 0; });
    checker.expect(
        back.weights == original.weights, has_weights ? "weights changed" : "weights forgotten",
        what(fmt::format("{}, and not those that were saved",
                         counted(static_cast<int64_t>(back.weights.size()), "weight"))),
        "to_bytes adds all of state.weights, as floats; from_bytes takes them, in the same place of the "
        "order.");
    checker.expect(back.step == original.step || !is_truncated(back.step, original.step) || back.step == 0,
                   "step truncated", what(fmt::format("step is {}, was {}", back.step, original.step)),
                   "These are the lower bits of the step: it passed through a type that is too small.");
    checker.expect(
        back.step == original.step, back.step == 0 ? "step forgotten" : "step changed",
        what(fmt::format("step is {}, was {}", back.step, original.step)),
        "The learning rate depends on the step, and so do data and logs. Add it, and take it in the "
        "same place of the order.");
    checker.expect(back.momentum == original.momentum,
                   has_momentum ? "momentum changed" : "momentum forgotten",
                   what("weights and step are right, the momentum is not"),
                   "The optimizer has a state of its own: the momentum remembers the last gradients. Weights "
                   "alone make another training, which looks right and is not.");
    checker.expect(
        back.rng == original.rng, "rng forgotten",
        what(fmt::format("rng is {}, was {}", back.rng, original.rng)),
        "Samples, dropout and noise are drawn from it: the training would use other numbers, or the "
        "same ones once more.");
  }
  checker.proved("the state is complete: a training that is restored in a new process has the same bits");
}

/// What a save and the load after it left.
struct Saved {
  std::string name;
  uint64_t number = 0;
  std::optional<Bytes> found;
  size_t calls = 0;
  std::vector<std::string> open, files;
};

void check_plain(const Seam& seam, Checker& checker) {
  // Two names beside each other, one of them drawn; empty and large states.
  const std::string other = fmt::format("{}-{}", kOther, checker.draw_between(60, 10, 99));
  const auto size = static_cast<size_t>(checker.draw_between(61, 5000, 20'000));
  std::map<uint64_t, Bytes> states = {{90, {}}, {91, Bytes(size, std::byte{7})}};
  for (uint64_t number = 0; number < 12; ++number) states[number] = state_number(checker, number);
  const std::vector<std::pair<std::string, uint64_t>> saves = {
      {kName, 0}, {kName, 1}, {other, 2}, {kName, 3}, {other, 4}, {other, 90}, {kName, 91},
      {kName, 5}, {kName, 6}, {kName, 7}, {other, 8}, {kName, 9}, {other, 10}};
  const auto [first, all, last] = checker.in_child([&] {
    SimulatedDisk disk;
    tell_progress("load on an empty disk");
    const auto empty = seam.load(disk, kName);
    std::vector<Saved> done;
    for (const auto& [name, number] : saves) {
      tell_progress(fmt::format("save number {}, under {}", done.size() + 1, name));
      disk.forget_calls();
      seam.save(disk, name, states[number]);
      auto& one =
          done.emplace_back(Saved{name, number, {}, disk.calls().size(), disk.open_files(), disk.names()});
      one.found = seam.load(disk, name);
    }
    return std::tuple(empty, done, seam.load(disk, kName));
  });
  checker.expect(!first, "something from nothing", "load gave a state although nothing was ever saved",
                 "If there is no file, there is no state.");
  std::map<std::string, Bytes> before;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [name, number, found, calls, open, files] = all[i];
    const auto earlier = before.find(name);
    const auto what =
        fmt::format("after save number {}, under {}, of {}: load gives {}; the files are: {}", i + 1, name,
                    counted(static_cast<int64_t>(states[number].size()), "byte"),
                    text_of(found, earlier == before.end() ? std::nullopt : std::optional(earlier->second),
                            states[number]),
                    fmt::join(files, ", "));
    checker.expect(calls > 0, "nothing written", what,
                   "save made no call on the disk. What is kept in a variable is gone with the process.");
    checker.expect(found.has_value(), "nothing saved", what, "load must find what save has written.");
    checker.expect(earlier == before.end() || *found != earlier->second, "older state loaded", what,
                   "There is a newer one. Let load try the newest first, and the one before it only if the "
                   "newest is missing or damaged.");
    checker.expect(*found == states[number], "not what was saved", what,
                   "load must give the bytes that save was given, and nothing more: take the seal off again. "
                   "Files of different names must not share anything.");
    checker.expect(open.empty(), "never closed",
                   fmt::format("after save number {} still open: {}", i + 1, fmt::join(open, ", ")),
                   "Every create has its close.");
    checker.expect(
        files.size() <= 8, "files pile up",
        fmt::format("after {} saves under two names there are {} files: {}", i + 1, files.size(),
                    fmt::join(files, ", ")),
        "Two checkpoints for each name are enough. Every save must replace one, or the disk fills up.");
    before[name] = states[number];
  }
  checker.expect(last == states[9], "not what was saved",
                 fmt::format("after a save under {}, load of {} gives {}", other, kName,
                             text_of(last, states[7], states[9])),
                 "Files of different names must not share anything.");
  checker.proved("what is saved is what is loaded, under several names, and files do not pile up");
}

void check_damage(const Seam& seam, Checker& checker) {
  const Bytes first = state_number(checker, 3), second = state_number(checker, 4);
  const auto start = first_saves(seam, checker);
  const auto all = checker.in_child([&] {
    std::vector<std::pair<std::string, std::optional<Bytes>>> done;
    for (const auto& [disk, text] : damaged_disks(seam, checker, start)) {
      tell_progress("load with " + text);
      done.emplace_back(text, seam.load(disk, kName));
    }
    return done;
  });
  for (const auto& [text, found] : all) {
    const auto what =
        fmt::format("two states were saved, then {}: load gives {}", text, text_of(found, first, second));
    checker.expect(
        found.has_value(), "no way back", what,
        "A disk can lose what it had. Keep the checkpoint before the last one under another name (rename "
        "it, before the new one takes its name), and let load try both.");
    checker.expect(*found != state_number(checker, 7) && *found != state_number(checker, 8), "names mixed up",
                   what,
                   fmt::format("load of {} gave what was saved under {}. Every file that save uses must have "
                               "its name in its own.",
                               kName, kOther));
    checker.expect(
        *found == first || *found == second, "damage not noticed", what,
        "load took the bytes as they are. seal() puts a checksum behind them when they are written, "
        "unseal() gives none if anything was changed: then the file before is the one to take.");
  }
  checker.proved("a file that the disk has damaged is noticed, and the checkpoint before it is taken");
}

/// Trains with a checkpoint every 5 steps while the power goes again and again; compares with a run without.
void check_training(const Seam& seam, Checker& checker) {
  const int64_t every = checker.draw_between(70, 3, 7), steps = 12 * every;
  TrainState uncut = start_training(checker.seed());
  for (int64_t i = 0; i < steps; ++i) train_step(uncut);
  const auto [state, cuts] = checker.in_child([&] {
    SimulatedDisk disk;
    TrainState at;
    uint64_t life = 0;
    for (bool is_done = false; !is_done; ++life) {
      tell_progress(fmt::format("a training after {} power cuts", life));
      const auto saved = seam.load(disk, kName);
      at = saved ? seam.from_bytes(*saved) : start_training(checker.seed());
      if (life < 40) disk.cut_after(checker.draw(life) % 20, 0);  // after that without
      try {
        while (at.step < steps) {
          train_step(at);
          if (at.step % every == 0) seam.save(disk, kName, seam.to_bytes(at));
        }
        is_done = true;
      } catch (const PowerCut&) {
        auto outcomes = disk.outcomes();
        disk = std::move(outcomes[checker.draw(life + 1000) % outcomes.size()].disk);
      }
    }
    return std::pair(at, life - 1);
  });
  checker.expect(state == uncut, "another training",
                 fmt::format("{} steps with {} power cuts ended in other weights than {} steps without",
                             steps, cuts, steps),
                 "Each part holds by itself, so look at how they work together: does load give the newest?");
  checker.proved(fmt::format("a training of {} steps with {} power cuts ends with the bits of one without",
                             steps, cuts));
}

}  // namespace

SimulatedDisk first_saves(const Seam& seam, Checker& checker) {
  const auto files = checker.in_child([&] {
    SimulatedDisk disk;
    tell_progress("the first save of a process");
    seam.save(disk, kName, state_number(checker, 3));
    seam.save(disk, kOther, state_number(checker, 7));
    std::vector<std::pair<std::string, Bytes>> all;
    for (const auto& name : disk.names()) all.emplace_back(name, *disk.read(name));
    return all;
  });
  SimulatedDisk disk;
  for (const auto& [name, bytes] : files) {
    disk.create(name);
    disk.append(name, bytes);
    disk.close(name);
  }
  return disk.synced_copy();
}

std::vector<Damaged> damaged_disks(const Seam& seam, const Checker& checker, SimulatedDisk saved) {
  for (const auto& [name, number] : {std::pair(kName, 4), {kOther, 8}})
    seam.save(saved, name, state_number(checker, static_cast<uint64_t>(number)));
  std::vector<Damaged> all;
  for (const auto& [disk, left] : saved.outcomes()) {
    for (const auto& name : disk.names()) {
      if (name.starts_with(kOther)) continue;
      const Bytes whole = *disk.read(name);
      for (uint64_t way = 0; way < 13; ++way) {
        Bytes bytes = whole;
        std::string text;
        if (way == 0) {
          bytes.resize(bytes.size() / 2);
          text = "cut to half its length";
        } else if (way == 1) {
          bytes.clear();
          text = "emptied";
        } else if (way == 12) {
          const auto at = std::ranges::adjacent_find(bytes, std::ranges::not_equal_to{});
          if (at == bytes.end()) continue;
          std::iter_swap(at, at + 1);
          text = "changed: two bytes beside each other have changed places";
        } else if (!bytes.empty()) {
          const size_t at = way == 2 ? bytes.size() - 1 : way == 3 ? 0 : checker.draw(way) % bytes.size();
          bytes[at] ^= static_cast<std::byte>(1U << (way % 8));
          text = fmt::format("changed in one bit of byte {}", at);
        }
        auto& one = all.emplace_back(
            Damaged{disk.synced_copy(),
                    fmt::format("the power went ({}), and the file {} was {}", left, name, text)});
        one.disk.damage(name, bytes);
      }
    }
  }
  return all;
}

void check(const Seam& seam, Checker& checker) {
  check_state(seam, checker);
  check_plain(seam, checker);
  check_cuts(seam, checker);
  check_damage(seam, checker);
  check_kills(seam, checker);
  check_second_crash(seam, checker);
  check_training(seam, checker);
}

}  // namespace lab::checkpoint
