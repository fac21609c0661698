#include "03_checkpoint/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <utility>

#include "03_checkpoint/parts.h"

namespace lab::checkpoint {

Bytes state_number(const Seam& seam, const Checker& checker, uint64_t number) {
  TrainState state = start_training(checker.draw(number));
  for (uint64_t i = 0; i <= number; ++i) train_step(state);
  return seam.to_bytes(state);
}

std::string told(const std::optional<Bytes>& found, const std::optional<Bytes>& before, const Bytes& now) {
  if (!found) return "nothing";
  if (*found == now) return "the new state";
  if (before && *found == *before) return "the old state";
  return fmt::format("{} bytes that are neither the old state nor the new one", found->size());
}

namespace {

void check_state(const Seam& seam, Checker& checker) {
  for (const int at : {1, 17, 40}) {
    TrainState state = start_training(checker.seed());
    for (int i = 0; i < at; ++i) train_step(state);
    tell_progress(fmt::format("to_bytes and from_bytes after step {}", at));
    TrainState restored = seam.from_bytes(seam.to_bytes(state));
    const TrainState original = state, back = restored;
    std::string differs = "no loss of the next 20 steps differs";
    restored.weights.resize(state.weights.size());
    restored.momentum.resize(state.weights.size());
    for (int i = 0; i < 20; ++i) {
      const double expected = train_step(state), found = train_step(restored);
      if (std::memcmp(&expected, &found, sizeof found) == 0) continue;
      differs = fmt::format("the loss of step {} is {:.6g}, without the interruption {:.6g}", at + i + 1,
                            found, expected);
      break;
    }
    const auto what = [&](const std::string& found) {
      return fmt::format("saved after step {} and restored: {}; {}", at, found, differs);
    };
    checker.expect(back.weights == original.weights, "weights forgotten",
                   what(fmt::format("{} weights, and not those that were saved", back.weights.size())),
                   "to_bytes adds state.weights, from_bytes takes them, in the same place of the order.");
    checker.expect(back.step == original.step, "step forgotten",
                   what(fmt::format("step is {}, was {}", back.step, original.step)),
                   "The learning rate depends on the step, and so do data and logs.");
    checker.expect(back.momentum == original.momentum, "momentum forgotten",
                   what("the weights are right, the momentum is not"),
                   "The optimizer has a state of its own: the momentum remembers the last gradients. Weights "
                   "alone make another training, which looks right and is not.");
    checker.expect(
        back.rng == original.rng, "rng forgotten",
        what(fmt::format("rng is {}, was {}", back.rng, original.rng)),
        "Samples, dropout and noise are drawn from it: the training goes on with other numbers, or "
        "with the same ones once more.");
  }
  checker.proved("the state is complete: a training that is restored goes on with the same bits");
}

void check_plain(const Seam& seam, Checker& checker) {
  SimulatedDisk disk;
  tell_progress("load on an empty disk");
  checker.expect(!seam.load(disk, kName), "something from nothing",
                 "load gave a state although nothing was ever saved",
                 "If there is no file, there is no state.");
  std::optional<Bytes> before;
  for (uint64_t number = 0; number < 3; ++number) {
    const Bytes state = state_number(seam, checker, number);
    tell_progress(fmt::format("save number {}", number + 1));
    seam.save(disk, kName, state);
    const auto found = seam.load(disk, kName);
    const auto what = fmt::format("after save number {}, load gives {}; the files are: {}", number + 1,
                                  told(found, before, state), fmt::join(disk.names(), ", "));
    checker.expect(found.has_value(), "nothing saved", what, "load must find what save has written.");
    checker.expect(
        *found == state, "not what was saved", what,
        "load must give the bytes that save was given, and nothing more: take the seal off again.");
    checker.expect(disk.open_files().empty(), "never closed",
                   fmt::format("after save the file {} is still open", fmt::join(disk.open_files(), ", ")),
                   "Every create has its close.");
    before = state;
  }
  checker.proved("what is saved is what is loaded");
}

void check_damage(const Seam& seam, Checker& checker) {
  SimulatedDisk disk;
  const Bytes first = state_number(seam, checker, 3), second = state_number(seam, checker, 4);
  seam.save(disk, kName, first);
  seam.save(disk, kName, second);
  for (const auto& name : disk.names()) {
    const Bytes whole = *disk.read(name);
    for (uint64_t way = 0; way < 12; ++way) {
      Bytes bytes = whole;
      std::string words;
      if (way == 0) {
        bytes.resize(bytes.size() / 2);
        words = "cut to half its length";
      } else if (way == 1) {
        bytes.clear();
        words = "emptied";
      } else if (!bytes.empty()) {
        const size_t at = checker.draw(way) % bytes.size();
        bytes[at] ^= std::byte{0x10};
        words = fmt::format("one bit of its byte {} turned", at);
      }
      SimulatedDisk damaged = disk.synced_copy();
      damaged.damage(name, bytes);
      tell_progress(fmt::format("load with the file {} {}", name, words));
      const auto found = seam.load(damaged, kName);
      const auto what = fmt::format("two states were saved, then the file {} was {}: load gives {}", name,
                                    words, told(found, first, second));
      checker.expect(
          found.has_value(), "no way back", what,
          "A disk can lose what it had. Keep the checkpoint before the last one under another name (rename "
          "it, before the new one takes its name), and let load try both.");
      checker.expect(
          *found == first || *found == second, "damage not noticed", what,
          "load took the bytes as they are. seal() puts a checksum behind them when they are written, "
          "unseal() gives none if anything was changed: then the file before is the one to take.");
    }
  }
  checker.proved("a file that the disk has damaged is noticed, and the checkpoint before it is taken");
}

/// Trains with a checkpoint every 5 steps while the power goes again and again; compares with a run in peace.
void check_training(const Seam& seam, Checker& checker) {
  constexpr int64_t kSteps = 60, kEvery = 5;
  TrainState peaceful = start_training(checker.seed());
  for (int64_t i = 0; i < kSteps; ++i) train_step(peaceful);

  SimulatedDisk disk;
  TrainState state;
  uint64_t life = 0;
  for (bool is_done = false; !is_done; ++life) {
    const auto saved = seam.load(disk, kName);
    state = saved ? seam.from_bytes(*saved) : start_training(checker.seed());
    if (life < 40) disk.cut_after(checker.draw(life) % 20, 0);  // after that in peace
    try {
      while (state.step < kSteps) {
        train_step(state);
        if (state.step % kEvery == 0) seam.save(disk, kName, seam.to_bytes(state));
      }
      is_done = true;
    } catch (const PowerCut&) {
      auto outcomes = disk.outcomes();
      disk = std::move(outcomes[checker.draw(life + 1000) % outcomes.size()].disk);
    }
  }
  checker.expect(state == peaceful, "another training",
                 fmt::format("{} steps with {} power cuts ended in other weights than {} steps in peace",
                             kSteps, life - 1, kSteps),
                 "Each part holds by itself, so look at how they work together: does load give the newest?");
  checker.proved(fmt::format("a training of {} steps with {} power cuts ends with the bits of one in peace",
                             kSteps, life - 1));
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_state(seam, checker);
  check_plain(seam, checker);
  check_cuts(seam, checker);
  check_damage(seam, checker);
  check_kills(seam, checker);
  check_training(seam, checker);
}

}  // namespace lab::checkpoint
