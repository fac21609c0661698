#include "train/run/saver.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "lockstep/error.h"
#include "parallel/ddp/agreement.h"
#include "train/checkpoint/files.h"
#include "train/checkpoint/index.h"
#include "train/checkpoint/strict_json.h"
#include "train/checkpoint/tensors.h"
#include "train/models/kernels/kernels.h"
#include "train/run/cpu_capability.h"

namespace lockstep::train {

namespace {

Pieces pieces_of(std::string_view text) {
  return {std::as_bytes(std::span(text))};
}

/// Runs `act` on each rank, which returns a text, and gives all ranks all texts; the first failure, naming
/// its rank, is thrown by all.
template <typename Act>
std::vector<std::string> on_all_ranks(Communicator& comm, const Act& act) {
  std::string said;
  try {
    said = "+";
    said += act();
  } catch (const UsageError& error) {
    said = fmt::format("?{}", error.what());
  } catch (const std::exception& error) {
    said = fmt::format("-rank {}: {}", comm.rank(), error.what());
  }
  auto texts = ddp::gather_texts(comm, said);
  for (auto& text : texts) {
    if (text.front() == '?') throw UsageError(text.substr(1));
    if (text.front() == '-') throw Error(text.substr(1));
    text.erase(0, 1);
  }
  return texts;
}

nlohmann::json to_json(const std::vector<Seal>& seals) {
  auto list = nlohmann::json::array();
  for (const auto& seal : seals) list.push_back({seal.file, seal.bytes, seal.xxh3});
  return list;
}

}  // namespace

Saver::Saver(const Run& run, const Communicator& comm, std::string data)
    : run_(run), comm_(comm), data_(std::move(data)), store_(run.checkpoints()) {}

Conditions Saver::conditions() const {
  return {{"engine", std::string(comm_.engine())},
          {"threads", fmt::format("{}", at::get_num_threads())},
          {"openblas_threads", blas_threads()},
          {"openblas_coretype", blas_kernels()},
          {"cpu_capability", cpu_capability()},
          {"kernels", kernels::kernels().name},
          {"data", data_condition(run_.settings, data_)},
          {"libtorch", TORCH_VERSION},
          {"world_size", fmt::format("{}", comm_.world_size())},
          {"parallel", run_.settings.parallel},
          {"schedule", run_.settings.parallel == "pipeline" ? run_.settings.schedule : ""}};
}

Restored Saver::find() {
  const auto told = on_all_ranks(comm_, [&]() -> std::string {
    if (comm_.rank() != 0) return "";
    const Resumption found = find_resumption(run_);
    nlohmann::json answer = {{"notes", found.notes}};
    if (!found.checkpoint) return answer.dump();
    answer["step"] = found.checkpoint->step;
    answer["loss"] = found.state.loss;
    answer["folder"] = found.checkpoint->folder.string();
    answer["conditions"] = found.state.conditions;
    return answer.dump();
  });
  const auto answer = nlohmann::json::parse(told.front());
  Restored restored = {.notes = answer.at("notes").get<std::vector<std::string>>()};
  if (!answer.contains("step")) return restored;
  restored.step = answer.at("step");
  restored.loss = answer.at("loss");
  found_ = answer.at("folder").get<std::string>();
  // Ranks on other hosts may compute under other conditions: all must know.
  const auto all = on_all_ranks(comm_, [&] {
    return nlohmann::json(differences(conditions(), answer.at("conditions").get<Conditions>())).dump();
  });
  for (const auto& text : all) {
    for (const std::string difference : nlohmann::json::parse(text)) {
      if (std::ranges::count(restored.differences, difference) == 0)
        restored.differences.push_back(difference);
    }
  }
  return restored;
}

void Saver::remove_leftovers() {
  on_all_ranks(comm_, [&]() -> std::string {
    if (comm_.rank() == 0) store_.remove_leftovers();
    return "";
  });
}

void Saver::restore(const Trainee& trainee, torch::optim::Optimizer& optimizer) {
  on_all_ranks(comm_, [&]() -> std::string {
    const at::NoGradGuard no_grad;
    load_weights(trainee.weights(), SavedTensors(found_, "model"));
    load_adam_state(optimizer, trainee.weights(), SavedTensors(found_, "optimizer"));
    return "";
  });
}

void Saver::save(int64_t step, double loss, const Trainee& trainee, torch::optim::Optimizer& optimizer) {
  const bool is_first = comm_.rank() == 0;
  on_all_ranks(comm_, [&]() -> std::string {
    if (is_first) store_.begin(step);
    return "";
  });
  try {
    const auto told = on_all_ranks(comm_, [&]() -> std::string {
      if (!trainee.own_file()) return "{}";
      const auto folder = store_.temporary(step);
      const auto write = [&](const std::string& kind, const TensorsToSave& tensors) {
        return write_safetensors(folder, tensor_file_name(kind, *trainee.own_file(), trainee.files()),
                                 tensors.data());
      };
      const TensorsToSave weights = weights_to_save(trainee.weights());
      const std::vector<Seal> seals = {write("model", weights),
                                       write("optimizer", adam_state(optimizer, trainee.weights()))};
      auto index = nlohmann::json::object();
      uint64_t bytes = 0;
      for (const auto& tensor : weights.data()) {
        index[tensor.name] = seals[0].file;
        bytes += tensor.bytes.size();
      }
      return nlohmann::json({{"seals", to_json(seals)}, {"index", index}, {"bytes", bytes}}).dump();
    });
    on_all_ranks(comm_, [&]() -> std::string {
      if (is_first) commit(step, loss, told);
      return "";
    });
  } catch (...) {
    if (is_first) store_.abandon(step);
    throw;
  }
}

void Saver::commit(int64_t step, double loss, const std::vector<std::string>& told) {
  const auto folder = store_.temporary(step);
  std::vector<Seal> seals;
  std::map<std::string, std::string> file_of;
  uint64_t bytes = 0;
  for (const auto& text : told) {
    const auto answer = nlohmann::json::parse(text);
    if (answer.empty()) continue;
    for (const auto& seal : answer.at("seals")) seals.push_back({seal[0], seal[1], seal[2]});
    for (const auto& [name, file] : answer.at("index").items()) file_of[name] = file;
    bytes += answer.at("bytes").get<uint64_t>();
  }
  const nlohmann::ordered_json state = {{"format", 1},
                                        {"step", step},
                                        {"loss", loss},
                                        {"samples", step * run_.settings.batch},
                                        {"conditions", conditions()},
                                        {"settings", nlohmann::ordered_json::parse(to_json(run_.settings))}};
  const auto add = [&](const std::string& name, const std::string& text) {
    seals.push_back(write_sealed(folder, name, pieces_of(text)));
  };
  add("model.safetensors.index.json", weights_index(file_of, bytes));
  add("state.json", state.dump(2) + "\n");
  for (const char* name : {"config.json", "tokenizer.json"}) {
    if (std::filesystem::exists(run_.folder / name)) add(name, read_text(run_.folder / name, kMostJsonBytes));
  }
  store_.commit(step, seals, run_.settings.keep);
}

}  // namespace lockstep::train
