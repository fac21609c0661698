#include "train/run/trainee.h"

#include "train/run/ddp_trainee.h"
#include "train/run/pipeline_trainee.h"

namespace lockstep::train {

std::unique_ptr<Trainee> make_trainee(const Run& run, const Task& task, const Communicator& comm,
                                      int64_t first_step) {
  if (run.settings.parallel == "pipeline") return make_pipeline_trainee(run, task, comm, first_step);
  return make_ddp_trainee(run, task, comm);
}

}  // namespace lockstep::train
