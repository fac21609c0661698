#include "train/training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

namespace lockstep::test {

Training::Training() {
  std::ofstream(folder_ / "small.json")
      << R"({"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 2,
             "max_position_embeddings": 16, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1})";
}

std::unique_ptr<Child> Training::start(Words words) const {
  words.insert(words.begin(), LOCKSTEP_COMMAND);
  // One thread: two that wait for each other on busy cores take their time.
  return std::make_unique<Child>(
      words, Child::Options{.environment = {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}},
                            .folder = folder_.path()});
}

std::string Training::run(const Words& words, int code) {
  const auto child = start(words);
  const int ended = child->wait();
  errors_ = child->errors();
  EXPECT_EQ(ended, code) << child->output() << errors_;
  EXPECT_TRUE(child->leaves_nothing());
  return child->output();
}

Training::Words Training::train(const std::string& run, const Words& more) const {
  Words words = {"train", "--config", "small.json", "--batch",          "8", "--steps", "12", "--run-dir",
                 run,     "--warmup", "2",          "--nproc-per-node", "2"};
  for (const auto& word : more) {
    // A flag that is given again takes the place of the one here.
    const auto same = std::find(words.begin(), words.end(), word);
    if (word.starts_with("--") && same != words.end()) words.erase(same, same + 2);
    words.push_back(word);
  }
  return words;
}

std::vector<std::string> Training::metrics(const std::string& run) const {
  std::vector<std::string> lines;
  std::istringstream text(read_file(folder_ / run / "metrics.jsonl"));
  for (std::string line; std::getline(text, line);) {
    auto metrics = nlohmann::json::parse(line);
    metrics.erase("tokens_per_s");
    metrics.erase("exposed_ms");
    lines.push_back(metrics.dump());
  }
  return lines;
}

size_t Training::weights(const std::string& run, int step) const {
  char name[32];
  std::snprintf(name, sizeof name, "step_%08d", step);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / run / "checkpoints" / name)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string bytes;
  for (const auto& file : files) bytes += read_file(file);
  return std::hash<std::string>()(bytes);
}

bool Training::has_done(const std::string& run, size_t steps) const {
  const std::string text = read_file(folder_ / run / "metrics.jsonl");
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) >= steps;
}

}  // namespace lockstep::test
