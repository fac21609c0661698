#include "parallel/ddp/reducer.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <unistd.h>

#include <algorithm>

#include "launch/cores.h"
#include "lockstep/error.h"
#include "parallel/ddp/buckets.h"
#include "parallel/say_where.h"

namespace lockstep::ddp {

namespace {

/// Whether a thread that reduces gets a core of its own.
bool has_spare_core(const Communicator& comm) {
  if (comm.engine() == "gloo" || comm.engine() == "mpi") return true;  // it mostly waits for the network
  const bool is_bound = launch::usable_cores() < sysconf(_SC_NPROCESSORS_ONLN);
  const int sharers = is_bound ? 1 : comm.world_size();
  return launch::usable_cores() > sharers * at::get_num_threads();
}

int64_t bytes_of_mib(double mib, const char* name) {
  if (!(mib > 0)) {
    throw UsageError(fmt::format("DistributedDataParallel: {} is {}; hint: it must be positive", name, mib));
  }
  return static_cast<int64_t>(mib * 1024 * 1024);
}

}  // namespace

Reducer::Reducer(std::shared_ptr<torch::nn::Module> module, const Communicator& comm,
                 const DdpOptions& options, Opening opening)
    : options_(options),
      opening_(opening),
      comm_(Communicator(comm).split(0).value()),
      replica_(std::move(module), comm_),
      overlaps_(options.overlap.value_or(has_spare_core(comm))),
      join_(comm_) {
  bytes_of_mib(options_.bucket_cap_mib, "bucket_cap_mib");
  bytes_of_mib(options_.first_bucket_cap_mib, "first_bucket_cap_mib");
  if (options_.check_weights_every < 0) {
    throw UsageError(fmt::format("DistributedDataParallel: check_weights_every is {}; hint: 0 is never",
                                 options_.check_weights_every));
  }
  replica_.compare_shapes();
  replica_.broadcast_parameters(0);
  replica_.broadcast_buffers(0);
  arm_hooks();
}

Reducer::~Reducer() {
  try {
    cancel_step();
  } catch (...) {
    // The others have their own reasons to know.
  }
}

void Reducer::arm_hooks() {
  const auto& parameters = replica_.parameters();
  std::vector<Gradient> wanted;
  bool is_new = false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& tensor = parameters[i].tensor;
    if (!tensor.requires_grad()) continue;
    const size_t index = wanted.size();
    const bool is_known = index < gradients_.size() && gradients_[index].parameter == i &&
                          gradients_[index].scalar_type == tensor.scalar_type();
    is_new = is_new || !is_known;
    if (is_known && !is_new) {
      wanted.push_back(std::move(gradients_[index]));
    } else {
      wanted.push_back({.parameter = i,
                        .scalar_type = tensor.scalar_type(),
                        .type = memory_of(parameters[i].name, tensor).type});
    }
    if (!wanted.back().hook.is_armed(tensor)) {
      wanted.back().hook = GradientHook(tensor, [this, index] { gradient_came(index); });
    }
  }
  is_new = is_new || wanted.size() != gradients_.size();
  gradients_ = std::move(wanted);
  if (!is_new) return;
  has_learned_ = false;
  log_.rebuilt_bucket_bytes.clear();
  make_buckets(backward_order(gradients_.size()));
}

void Reducer::make_buckets(const std::vector<size_t>& order) {
  std::vector<GradientSize> sizes;
  for (const auto& gradient : gradients_) {
    const at::Tensor& tensor = parameter_of(gradient).tensor;
    sizes.push_back(
        {.bytes = static_cast<int64_t>(tensor.nbytes()), .type = static_cast<int>(tensor.scalar_type())});
  }
  buckets_.clear();
  auto& logged = has_learned_ ? log_.rebuilt_bucket_bytes : log_.bucket_bytes;
  logged.clear();
  log_.gradient_bytes = 0;
  for (auto& indices :
       assign_buckets(order, sizes, bytes_of_mib(options_.first_bucket_cap_mib, "first_bucket_cap_mib"),
                      bytes_of_mib(options_.bucket_cap_mib, "bucket_cap_mib"))) {
    Bucket bucket;
    for (const size_t index : indices) {
      gradients_[index].bucket = buckets_.size();
      bucket.bytes += sizes[index].bytes;
    }
    bucket.gradients = std::move(indices);
    logged.push_back(bucket.bytes);
    log_.gradient_bytes += bucket.bytes;
    buckets_.push_back(std::move(bucket));
  }
}

void Reducer::before_forward(int64_t batch) {
  cancel_step();
  if (!at::GradMode::is_enabled()) return;
  ++forwards_;
  early_.clear();
  arm_hooks();
  constexpr int64_t kOften = 32;  // listing the parameters takes microseconds
  if (forwards_ <= 4 || forwards_ % kOften == 0) problem_of_forward_ = replica_.what_changed();
  tied_steps_.check(replica_.parameters());
  parallel::say_where([&] { return where("forward", forwards_); }, [&] { agree_on_forward(batch); });
  if (gradients_.empty()) return;
  constexpr size_t kMost = 4096;  // in eval mode: there may be no backward ever
  if (replica_.module().is_training()) {
    awaited_.push_back(forwards_);
  } else if (awaited_in_eval_.size() < kMost) {
    awaited_in_eval_.push_back(forwards_);
  }
}

void Reducer::agree_on_forward(int64_t batch) {
  const bool is_training = replica_.module().is_training();
  const bool sends_buffers =
      no_syncs == 0 && is_training && options_.broadcast_buffers && replica_.has_buffers();
  const bool weighs = options_.unequal_batches == UnequalBatches::kGlobalMean;
  if (sends_buffers) {
    if (join_.is_on()) join_.tell({.is_active = true, .phase = Phase::kBroadcastBuffers});
    replica_.broadcast_buffers(join_.is_on() ? join_.lowest_active() : 0);
  }
  if (weighs) {
    if (batch < 0) {
      throw UsageError(
          "ddp forward: no tensor among the arguments tells how many samples there are; hint: "
          "UnequalBatches::kGlobalMean needs one whose first dimension is the batch");
    }
    std::vector<int64_t> sum = {batch};
    if (join_.is_on()) {
      join_.tell({.is_active = true, .phase = Phase::kWeigh, .batch = batch});
      sum[0] = join_.batch_sum();
    } else {
      comm_.all_reduce(sum);
    }
    batch_weight_ =
        static_cast<double>(batch) * comm_.world_size() / static_cast<double>(std::max<int64_t>(sum[0], 1));
  }
  const bool compares = options_.check_weights_every > 0 && log_.steps > 0 && is_training && no_syncs == 0 &&
                        !join_.is_on() && log_.steps % options_.check_weights_every == 0;
  if (compares) replica_.compare_weights(log_.steps);
}

void Reducer::watch(at::Tensor& output, int64_t batch) {
  if (!at::GradMode::is_enabled() || !output.defined() || !output.requires_grad()) return;
  // A tensor of its own: a leaf (a parameter, an input) is not this forward's, and what comes to an output
  // from another one has its weight already.
  if (batch_weight_ != 1 || output.is_leaf()) output = output.alias();
  output.register_hook([self = weak_from_this(), forward = forwards_, batch,
                        weight = batch_weight_](const at::Tensor& gradient) {
    const auto alive = self.lock();
    const bool counts = alive != nullptr && alive->backward_reached(forward, batch);
    return weight == 1 || !counts || !gradient.defined() ? at::Tensor()
                                                         : gradient * weight;  // none: as it is
  });
}

bool Reducer::backward_reached(int64_t forward, int64_t batch) {
  std::erase(awaited_, forward);
  const bool is_in_eval = std::erase(awaited_in_eval_, forward) > 0;
  const bool adds_gradients =
      gradients_.empty() || std::any_of(gradients_.begin(), gradients_.end(),
                                        [](const auto& each) { return each.hook.may_come(); });
  if (!adds_gradients) return false;
  if (is_open_ && is_abandoned_) cancel_step();
  is_in_eval_ = is_in_eval_ || is_in_eval;
  if (std::find(counted_.begin(), counted_.end(), forward) == counted_.end()) {
    counted_.push_back(forward);
    knows_batch_ = knows_batch_ && batch >= 0;
    batch_ += batch;
  }
  if (is_open_ || no_syncs > 0) return true;
  if (!sends_late_) announce_step();
  open_step();
  for (const size_t index : std::exchange(early_, {})) gradient_came(index);
  close_at_end_of_backward();
  return true;
}

void Reducer::close_without_output() {
  const auto came = std::exchange(early_, {});
  if (came.empty() || awaited_.empty()) return;  // an output was reached after all; a module called directly
  if (!sends_late_) announce_step();
  open_step();
  is_stray_ = true;
  if (options_.unequal_batches == UnequalBatches::kGlobalMean) {
    complain(
        "backward reached parameters, but no output of forward, whose gradient could be weighed; hint: let "
        "forward return what the loss is made of");
  }
  close_step();
}

void Reducer::close_at_end_of_backward() {
  // If backward throws, autograd drops its callbacks uncalled.
  struct End {
    explicit End(std::shared_ptr<Reducer> of) : reducer(std::move(of)) {}
    ~End() {
      if (!was_called) reducer->is_abandoned_ = true;
    }
    const std::shared_ptr<Reducer> reducer;
    bool was_called = false;
  };
  const auto end = std::make_shared<End>(shared_from_this());
  torch::autograd::Engine::get_default_engine().queue_callback([end] {
    end->was_called = true;
    end->reducer->close_step();
  });
}

void Reducer::open_step() {
  is_open_ = true;
  is_abandoned_ = false;
  all_threw_ = false;
  sent_ = 0;
  problem_ = std::exchange(problem_of_forward_, {});
  arrival_.clear();
  opened_ = Clock::now();
  for (auto& gradient : gradients_) {
    gradient.came = 0;
    gradient.absent.reset();
    gradient.before = parameter_of(gradient).tensor.grad().unsafeGetTensorImpl();
  }
  for (auto& bucket : buckets_) {
    bucket.is_sent = false;
    bucket.work = {};
    bucket.missing = 0;
    bucket.ready = bucket.launched = bucket.done = {};
    for (const size_t index : bucket.gradients) bucket.missing += gradients_[index].expected > 0 ? 1 : 0;
  }
}

void Reducer::gradient_came(size_t index) {
  if (is_open_ && is_abandoned_) cancel_step();
  if (!is_open_ && no_syncs == 0) {
    if (opening_ == Opening::kGradients) {
      open_step();
      close_at_end_of_backward();
    } else {
      // Of a parameter that the loss uses beside the model's outputs, or of a backward that is not ours.
      if (early_.empty()) {
        torch::autograd::Engine::get_default_engine().queue_callback(
            [self = shared_from_this()] { self->close_without_output(); });
      }
      early_.push_back(index);
    }
  }
  if (!is_open_) return;  // a backward that is not synchronised
  Gradient& gradient = gradients_[index];
  Bucket& bucket = buckets_[gradient.bucket];
  if (++gradient.came == 1 && !has_learned_) arrival_.push_back(index);
  if (bucket.is_sent) {
    return complain(
        fmt::format("parameter '{}' got another gradient after its own had been sent; hint: the "
                    "graph changed since the first backward; DdpOptions::overlap = false sends at "
                    "the end only",
                    parameter_of(gradient).name));
  }
  if (gradient.came != gradient.expected || --bucket.missing > 0) return;
  bucket.ready = Clock::now();
  if (!has_learned_ || !overlaps_ || sends_late_) return;
  for (; sent_ < buckets_.size() && buckets_[sent_].missing == 0; ++sent_) send(buckets_[sent_], index);
}

void Reducer::send(Bucket& bucket, size_t newest) {
  std::vector<Buffer> places;
  places.reserve(bucket.gradients.size());
  for (const size_t index : bucket.gradients) {
    places.push_back(place_of(gradients_[index], index == newest));
    bucket.kept.push_back(gradients_[index].absent.defined() ? gradients_[index].absent
                                                             : parameter_of(gradients_[index]).tensor.grad());
  }
  bucket.is_sent = true;
  bucket.launched = Clock::now();
  if (overlaps_) {
    bucket.work = comm_.iall_reduce_coalesced(std::move(places), ReduceOp::kMean);
  } else {
    comm_.all_reduce_coalesced(std::move(places), ReduceOp::kMean);
    bucket.done = Clock::now();
  }
}

Buffer Reducer::place_of(Gradient& gradient, bool newest) {
  const NamedParameter& parameter = parameter_of(gradient);
  at::Tensor& tensor = parameter.tensor.mutable_grad();
  if (tensor.defined() && tensor.layout() != at::kStrided) {
    complain(fmt::format("the gradient of parameter '{}' is sparse; hint: make its layer with sparse(false)",
                         parameter.name));
  }
  if (!tensor.defined() || tensor.layout() != at::kStrided || is_shadow_) {
    gradient.absent = at::zeros_like(parameter.tensor);
    return {gradient.absent.data_ptr(), gradient.absent.numel(), gradient.type};
  }
  if (needs_own_copy(gradient, newest)) {
    at::Tensor own = at::empty_like(parameter.tensor, parameter.tensor.options().requires_grad(false));
    const at::NoGradGuard no_grad;
    own.copy_(tensor);
    tensor = own;
  }
  if (options_.check_finite) require_finite(parameter, tensor);
  return {tensor.data_ptr(), tensor.numel(), gradient.type};
}

bool Reducer::needs_own_copy(const Gradient& gradient, bool newest) const {
  const at::Tensor& parameter = parameter_of(gradient).tensor;
  const at::Tensor& tensor = parameter.grad();
  // A graph of the gradient itself (create_graph) must not see how it changes. A type of old: the parameter's
  // changed.
  if (tensor.requires_grad() || tensor.scalar_type() != parameter.scalar_type() ||
      tensor.strides() != parameter.strides()) {
    return true;
  }
  // What was there before is the caller's, who may look at it through other tensors. What autograd has just
  // put there may be a view of somebody's memory; backward still holds the one that came last.
  if (tensor.unsafeGetTensorImpl() == gradient.before) return false;
  return static_cast<int64_t>(tensor.storage().use_count()) > (newest ? 2 : 1);
}

void Reducer::require_finite(const NamedParameter& parameter, const at::Tensor& gradient) {
  if (at::isfinite(gradient).all().item<bool>()) return;
  complain(
      fmt::format("the gradient of parameter '{}' has a NaN or Inf; hint: look at this rank's batch, or "
                  "lower the learning rate",
                  parameter.name));
}

std::string Reducer::where(const char* what, int64_t number) const {
  return fmt::format("ddp {} {} on rank {}{}", what, number, comm_.rank(),
                     awaited_.empty()
                         ? ""
                         : fmt::format(", after {} {} in training mode without a backward", awaited_.size(),
                                       awaited_.size() == 1 ? "forward" : "forwards"));
}

void Reducer::complain(const std::string& problem) {
  if (problem_.empty()) problem_ = problem;
}

std::vector<GradientBucket> Reducer::buckets() const {
  std::vector<GradientBucket> all;
  for (const auto& bucket : buckets_) {
    GradientBucket& shown = all.emplace_back();
    shown.bytes = bucket.bytes;
    for (const size_t index : bucket.gradients) {
      shown.names.push_back(parameter_of(gradients_[index]).name);
      shown.parameters.push_back(parameter_of(gradients_[index]).tensor);
    }
  }
  return all;
}

DdpLoggingData Reducer::logging_data() const {
  DdpLoggingData data = log_;
  data.rank = comm_.rank();
  data.world_size = comm_.world_size();
  data.engine = comm_.engine();
  data.parameters = static_cast<int64_t>(gradients_.size());
  data.overlaps = overlaps_;
  return data;
}

}  // namespace lockstep::ddp
