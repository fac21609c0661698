#include "lockstep/parallel/ddp/bucketing.h"

#include <fmt/format.h>

#include "parallel/ddp/buckets.h"
#include "parallel/ddp/demo_tools.h"
#include "parallel/ddp/reducer.h"

namespace lockstep {

std::vector<at::Tensor> GradientBucket::gradients() const {
  std::vector<at::Tensor> all;
  for (const auto& parameter : parameters) all.push_back(parameter.grad());
  return all;
}

BucketedDDPHooks::BucketedDDPHooks(const AnyModel& model, DataParallelComms& comms, double bucket_size_mb)
    : BucketedDDPHooks(model, comms,
                       DdpOptions{.bucket_cap_mib = bucket_size_mb, .first_bucket_cap_mib = bucket_size_mb}) {
}

BucketedDDPHooks::BucketedDDPHooks(const AnyModel& model, DataParallelComms& comms, const DdpOptions& options)
    : reducer_(std::make_shared<ddp::Reducer>(model.module(), comms.communicator(), options,
                                              ddp::Reducer::Opening::kGradients)) {}

std::vector<GradientBucket> BucketedDDPHooks::buckets() const {
  return reducer_->buckets();
}
DdpLoggingData BucketedDDPHooks::logging_data() const {
  return reducer_->logging_data();
}

std::vector<BucketingResult> compare_bucketed_vs_unbucketed(const AnyModel& model, DataParallelComms& comms,
                                                            const BucketingOptions& options) {
  const at::Tensor input = ddp::sample_input(model, options.batch, static_cast<uint64_t>(comms.rank()));
  std::vector<std::vector<double>> backward(options.caps_mib.size()), communication(backward),
      exposed(backward);
  std::vector<BucketingResult> results(options.caps_mib.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < options.caps_mib.size(); ++i) {
      const double cap = options.caps_mib[i];
      const BucketedDDPHooks hooks(model, comms, cap == 0 ? ddp::kOneGradientMib : cap);
      double last_ms = 0;
      for (int step = 0; step < 3; ++step) {  // the first learns, the second is the first of its kind
        ddp::drop_gradients(*model);
        const at::Tensor loss = model.forward(input).square().mean();
        comms.barrier();
        last_ms = ddp::milliseconds_of([&] { loss.backward(); });
      }
      const DdpLoggingData log = hooks.logging_data();
      backward[i].push_back(last_ms);
      communication[i].push_back(log.communication_us / 1e3);
      exposed[i].push_back(log.exposed_us / 1e3);
      results[i] = {.bucket_cap_mib = cap,
                    .messages = static_cast<int64_t>(log.rebuilt_bucket_bytes.size()),
                    .bytes = log.gradient_bytes,
                    .last = log};
    }
  }
  ddp::drop_gradients(*model);
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].backward_ms = ddp::median(backward[i]);
    results[i].communication_ms = ddp::median(communication[i]);
    results[i].exposed_ms = ddp::median(exposed[i]);
  }
  return results;
}

std::string to_text(const std::vector<BucketingResult>& results) {
  std::string text = fmt::format("{:>12} {:>9} {:>11} {:>12} {:>17} {:>11}\n", "bucket cap", "messages",
                                 "bytes", "backward ms", "communication ms", "exposed ms");
  for (const auto& row : results) {
    const std::string cap =
        row.bucket_cap_mib == 0 ? "no buckets" : fmt::format("{:g} MiB", row.bucket_cap_mib);
    text += fmt::format("{:>12} {:>9} {:>11} {:>12.3f} {:>17.3f} {:>11.3f}\n", cap, row.messages, row.bytes,
                        row.backward_ms, row.communication_ms, row.exposed_ms);
  }
  return text;
}

}  // namespace lockstep
