// How a step ends: what is missing, what the ranks tell each other, what is learned from it.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "lockstep/error.h"
#include "lockstep/trace/writer.h"
#include "parallel/ddp/agreement.h"
#include "parallel/ddp/buckets.h"
#include "parallel/ddp/reducer.h"
#include "parallel/say_where.h"

namespace lockstep::ddp {

namespace {

constexpr int64_t kNoBatch = std::numeric_limits<int64_t>::min();  // loses every comparison

}  // namespace

void Reducer::find_unused() {
  std::vector<const NamedParameter*> unused;
  for (auto& gradient : gradients_) {
    const NamedParameter& parameter = parameter_of(gradient);
    if (options_.static_graph && has_learned_ && gradient.expected != gradient.came) {
      complain(
          fmt::format("parameter '{}' got {} gradients, {} in the first backward; hint: the graph is not "
                      "static: do not say so by DdpOptions::static_graph",
                      parameter.name, gradient.came, gradient.expected));
    }
    if (gradient.came > 0 || options_.static_graph || options_.find_unused_parameters) continue;
    unused.push_back(&parameter);
  }
  if (unused.empty()) return;
  const auto now = list_parameters(replica_.module());
  std::vector<std::string> names;
  for (const auto* parameter : unused) {
    const bool is_still_there = std::any_of(now.begin(), now.end(), [&](const NamedParameter& each) {
      return each.tensor.is_same(parameter->tensor);
    });
    names.push_back(fmt::format("'{}'{}", parameter->name,
                                is_still_there ? "" : " (the model has another tensor there by now)"));
  }
  complain(
      fmt::format("no gradient came for {} {}; hint: all parameters must take part in the loss; if some do "
                  "not always, set DdpOptions::find_unused_parameters",
                  names.size() == 1 ? "parameter" : "parameters", fmt::join(names, ", ")));
}

void Reducer::find_replaced() {
  for (const auto& bucket : buckets_) {
    for (size_t i = 0; i < bucket.gradients.size(); ++i) {
      const Gradient& gradient = gradients_[bucket.gradients[i]];
      const NamedParameter& parameter = parameter_of(gradient);
      if (gradient.absent.defined() || bucket.kept[i].is_same(parameter.tensor.grad())) continue;
      complain(fmt::format(
          "the gradient of parameter '{}' was replaced while it was reduced; hint: change gradients "
          "after backward()",
          parameter.name));
    }
  }
}

void Reducer::reduce_the_rest() try {
  for (; sent_ < buckets_.size(); ++sent_) send(buckets_[sent_], gradients_.size());
  for (auto& bucket : buckets_) {
    bucket.work.wait();
    if (overlaps_) bucket.done = bucket.work.finished_at();
  }
} catch (const PeerError&) {
  throw;
} catch (const std::exception& error) {
  comm_.abort(fmt::format("{}: {}", where("step", log_.steps + 1), error.what()));
  throw;
}

void Reducer::close_step() {
  computed_ = Clock::now();
  struct Closing {
    Reducer& self;
    ~Closing() {
      self.is_open_ = false;
      self.batch_ = 0;
      self.knows_batch_ = true;
      self.counted_.clear();
      // A backward that reached no output may not be the last one of its forward.
      self.awaited_.erase(self.awaited_.begin(), self.awaited_.end() - (self.is_stray_ ? 1 : 0));
      self.awaited_in_eval_.clear();
      self.is_in_eval_ = false;
      self.is_stray_ = false;
      for (auto& bucket : self.buckets_) {
        try {
          bucket.work.wait();
        } catch (...) {
          // It is on its way already.
        }
        bucket.work = {};
        bucket.kept.clear();
      }
      for (auto& gradient : self.gradients_) gradient.absent.reset();
    }
  } closing{*this};
  if (!is_shadow_ && !is_stray_) find_unused();
  parallel::say_where([&] { return where("step", log_.steps + 1); },
                      [&] {
                        if (sends_late_ && !is_shadow_) announce_step();
                        reduce_the_rest();
                        if (!is_shadow_) find_replaced();
                        agree();
                      });
  const bool is_weighted = options_.unequal_batches == UnequalBatches::kGlobalMean;  // and so right already
  if (const double factor = join_.factor(); factor != 1 && !is_shadow_ && !is_weighted) {
    const at::NoGradGuard no_grad;
    for (const auto& gradient : gradients_) {
      at::Tensor& tensor = parameter_of(gradient).tensor.mutable_grad();
      if (tensor.defined()) tensor.mul_(factor);
    }
  }
  ++log_.steps;
  log_step();
  if (!is_stray_) learn();
  if (options_.check_tied_steps) tied_steps_.remember(replica_.parameters());
}

void Reducer::agree() {
  const bool lacks = std::any_of(gradients_.begin(), gradients_.end(),
                                 [](const Gradient& each) { return each.absent.defined(); });
  const bool tells_batch =
      options_.unequal_batches == UnequalBatches::kRefuse && knows_batch_ && !counted_.empty() && !is_shadow_;
  // In a join ranks may differ in that.
  const int64_t lost = join_.is_on() ? 0 : static_cast<int64_t>(2 * skipped() + (is_stray_ ? 1 : 0));
  std::vector<int64_t> said = {problem_.empty() ? 0 : 1,
                               lacks && !is_shadow_ ? 1 : 0,
                               tells_batch ? batch_ : kNoBatch,
                               tells_batch ? -batch_ : kNoBatch,
                               lost,
                               -lost};
  comm_.all_reduce(said, ReduceOp::kMax);
  if (said[0] != 0) {
    const std::string text =
        fmt::format("ddp step {}: {}", log_.steps + 1, summary_of(gather_texts(comm_, problem_)));
    all_threw_ = true;
    throw UsageError(text);
  }
  if (said[4] != -said[5]) {
    const auto texts = gather_texts(
        comm_, fmt::format("{}{}", skipped(), is_stray_ ? " (and a backward past all outputs)" : ""));
    all_threw_ = true;
    throw UsageError(fmt::format(
        "ddp step {}: forwards{} since the last step without a backward: {}; hint: skip a backward on "
        "all ranks or on none, else batches no longer match; evaluate {}under no_grad",
        log_.steps + 1, is_in_eval_ ? "" : " in training mode", summary_of(texts),
        is_in_eval_ ? "" : "in eval mode or "));
  }
  if (said[2] != kNoBatch && said[2] != -said[3]) {
    all_threw_ = true;
    throw UsageError(
        fmt::format("ddp step {}: ranks gave between {} and {} samples; the mean of their means is "
                    "not the mean over samples; hint: DdpOptions::unequal_batches says what shall be",
                    log_.steps + 1, -said[3], said[2]));
  }
  if (said[1] != 0) agree_on_absent_gradients();
}

void Reducer::agree_on_absent_gradients() {
  std::vector<uint8_t> is_used;
  for (const auto& gradient : gradients_) is_used.push_back(gradient.absent.defined() ? 0 : 1);
  comm_.all_reduce(is_used, ReduceOp::kMax);
  for (size_t i = 0; i < gradients_.size(); ++i) {
    Gradient& gradient = gradients_[i];
    if (is_used[i] == 0 || !gradient.absent.defined() || is_shadow_) continue;
    parameter_of(gradient).tensor.mutable_grad() = gradient.absent;
  }
}

void Reducer::learn() {
  if (has_learned_) {
    for (auto& gradient : gradients_) {
      if (!options_.static_graph && gradient.came > 0) gradient.expected = gradient.came;
    }
    return;
  }
  std::vector<int64_t> order;
  std::vector<bool> came(gradients_.size());
  const auto add = [&](size_t index) {
    if (!came[index]) order.push_back(static_cast<int64_t>(index));
    came[index] = true;
  };
  for (const size_t index : arrival_) add(index);
  for (const size_t index : backward_order(gradients_.size())) add(index);
  comm_.broadcast(order, 0);
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] == static_cast<int64_t>(i)) continue;
    throw Error(
        fmt::format("ddp step {}: rank 0's order of {} gradients is not a permutation: it has {} in place of "
                    "{}; hint: do all ranks run the same build of the program?",
                    log_.steps, sorted.size(), sorted[i], i));
  }
  std::vector<int32_t> counts;
  for (const auto& gradient : gradients_) counts.push_back(gradient.came);
  comm_.all_reduce(counts, ReduceOp::kMax);
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const int came_here = is_shadow_ ? counts[i] : gradients_[i].came;  // without inputs: as the others say
    gradients_[i].expected = options_.static_graph ? came_here : std::max(came_here, 1);
  }
  has_learned_ = true;
  make_buckets({order.begin(), order.end()});
}

void Reducer::log_step() {
  const auto since_open = [&](Clock::time_point time) {
    return time == Clock::time_point() ? 0.0
                                       : std::chrono::duration<double, std::micro>(time - opened_).count();
  };
  log_.buckets.clear();
  log_.backward_us = since_open(computed_);
  log_.communication_us = 0;
  double free = 0;
  for (auto& bucket : buckets_) {
    if (bucket.ready == Clock::time_point()) bucket.ready = computed_;
    const BucketTimes times = {.ready_us = since_open(bucket.ready),
                               .launch_us = since_open(bucket.launched),
                               .done_us = since_open(bucket.done)};
    log_.communication_us += times.done_us - std::max(times.launch_us, free);
    free = times.done_us;
    log_.buckets.push_back(times);
  }
  log_.exposed_us = std::max(0.0, free - log_.backward_us);
  if (trace::enabled()) trace_step();
}

void Reducer::trace_step() {
  const auto ns_of = [](Clock::time_point time) {  // steady_clock is CLOCK_MONOTONIC, as the clock of spans
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  };
  static const trace::Name kBackward("backward");
  trace::record(kBackward, ns_of(opened_), ns_of(computed_),
                {.stream = trace::Stream::kCompute, .call = log_.steps});
  // One after the other, as they are reduced: a bucket that is sent early waits for those before it.
  Clock::time_point free = opened_;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    trace::record(trace::Name(fmt::format("bucket {}", i)), ns_of(std::max(bucket.launched, free)),
                  ns_of(bucket.done),
                  {.stream = overlaps_ ? trace::Stream::kProgress : trace::Stream::kCommunication,
                   .bytes = bucket.bytes,
                   .call = log_.steps});
    free = bucket.done;
  }
}

void Reducer::cancel_step() {
  if (!is_open_) return;
  complain("backward did not come to its end; hint: its own error says why");
  try {
    close_step();
  } catch (const PeerError&) {
    throw;
  } catch (const Error&) {
    // What the others throw now, this rank's caller has seen.
  }
}

}  // namespace lockstep::ddp
