#include "cli/train_options.h"

#include <functional>
#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/torch_verbs.h"

namespace lockstep::cli {

namespace {

/// A flag for each setting that has something to say to people; what is given is noted by name.
void add_settings(Flags& flags, train::GivenSettings& given) {
  const auto note = [&given]<typename T>(const train::Setting<T>& setting) {
    return std::function<void(const T&)>([&given, &setting](const T& value) {
      given.values.*setting.field = value;
      given.names.insert(setting.name);
    });
  };
  const train::TrainSettings standard;
  for (const auto& setting : train::text_settings()) {
    if (setting.help[0] == '\0') continue;
    flags.given_text(train::flag_of(setting.name), note(setting), setting.choices, standard.*setting.field,
                     setting.help);
  }
  for (const auto& setting : train::whole_settings()) {
    if (setting.help[0] == '\0') continue;
    flags.given_number(train::flag_of(setting.name), note(setting), setting.low, setting.high,
                       standard.*setting.field, setting.help);
  }
  for (const auto& setting : train::real_settings()) {
    flags.given_number(train::flag_of(setting.name), note(setting), setting.low, setting.high,
                       standard.*setting.field, setting.help);
  }
}

}  // namespace

std::string chosen_engine(train::RunRequest& request, const train::Variables& environment) {
  std::string& engine = request.given.values.engine;
  const auto variable = environment.find("LOCKSTEP_ENGINE");
  if (engine.empty() && variable != environment.end()) engine = variable->second;
  if (engine.empty()) return request.resume ? train::read_run(request.folder).settings.engine : "";
  request.given.names.insert("engine");
  return engine;
}

Action define_train(Flags flags) {
  const auto options = std::make_shared<TrainFlags>();
  auto& request = options->request;
  flags.text("--config", request.config_file, "The model's shape (default: as config/config.json)", "FILE");
  add_settings(flags, request.given);
  flags.text("--nproc-per-node", options->nproc_per_node, "Ranks (default: as many as there are cores)",
             "N|auto");
  flags.text("--engine", request.given.values.engine, "shm, gloo or mpi (default: from the topology)",
             "NAME");
  flags.path("--run-dir", request.folder, "The run's folder (default: the next free runs/DATA-N)", "FOLDER");
  flags.toggle("--resume", request.resume,
               "Go on with the run in --run-dir, from its newest whole checkpoint");
  flags.toggle("--inexact", options->inexact, "Resume also where the steps would not have the same bits");
  flags.text("--max-restarts", options->max_restarts,
             "How often all ranks are started again, from the newest checkpoint, after a failure", "N");
  flags.text("--grace", options->grace, "Seconds between the request to stop and SIGKILL", "SECONDS");
  flags.toggle("--trace", options->trace, "Record where time goes, into trace.json in the run's folder");
  flags.toggle("--tensorboard", options->tensorboard, "Write TensorBoard events into the run's folder");
  return [options](const Invocation& invocation) { return run_train(*options, invocation); };
}

Action define_train_rank(Flags flags) {
  const auto options = std::make_shared<TrainRankFlags>();
  flags.text("--run-dir", options->run_dir, "The run's folder", "FOLDER");
  flags.text("--settings", options->settings, "What takes the place of the folder's run.json", "JSON");
  flags.toggle("--resume", options->resume, "From the newest whole checkpoint");
  flags.toggle("--inexact", options->inexact, "Also where the steps would not have the same bits");
  flags.toggle("--tensorboard", options->tensorboard, "Write TensorBoard events");
  return [options](const Invocation& invocation) { return run_train_rank(*options, invocation); };
}

Action define_probe(Flags) {
  return run_probe;
}

}  // namespace lockstep::cli
