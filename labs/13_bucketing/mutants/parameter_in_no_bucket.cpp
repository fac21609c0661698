// Keeps a bucket only when it is full: the last one never is.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "lab/autograd.h"
#include "lab/collectives.h"
#include "lab/nets.h"
#include "lab/world.h"

namespace my_work {

std::vector<std::vector<size_t>> fill_buckets(const std::vector<int64_t>& bytes, int64_t cap_bytes) {
  std::vector<std::vector<size_t>> buckets;
  std::vector<size_t> open;
  int64_t filled = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    if (!open.empty() && filled + bytes[i] > cap_bytes) {
      buckets.push_back(open);
      open.clear();
      filled = 0;
    }
    open.push_back(i);
    filled += bytes[i];
  }
  return buckets;
}

class Bucketer {
 public:
  Bucketer(lab::Rank& rank, lab::Net& net, int64_t cap_bytes) : rank_(rank) {
    const auto parameters = lab::trainable_parameters(net);
    std::vector<int64_t> bytes;
    for (const auto& parameter : parameters) bytes.push_back(parameter.numel() * 4);
    for (const auto& indices : fill_buckets(bytes, cap_bytes)) {
      const size_t b = buckets_.size();
      auto& bucket = buckets_.emplace_back();
      for (const size_t i : indices) {
        bucket.parameters.push_back(parameters[i]);
        bucket.flat.resize(bucket.flat.size() + lab::floats(parameters[i]).size());
        hooks_.push_back(lab::after_gradient(parameters[i], [this, b] { gradient_came(b); }));
      }
      bucket.pending = bucket.parameters.size();
    }
  }

  void finish() {
    while (next_ < buckets_.size()) send(buckets_[next_++]);
    next_ = 0;
    for (auto& bucket : buckets_) {
      bucket.work.wait();
      auto from = bucket.flat.begin();
      for (const auto& parameter : bucket.parameters) {
        for (float& value : lab::floats(parameter.grad()))
          value = *from++ / static_cast<float>(rank_.world_size());
      }
      bucket.pending = bucket.parameters.size();
    }
  }

 private:
  struct Bucket {
    std::vector<torch::Tensor> parameters;
    size_t pending = 0;       ///< Gradients that have not come in this step.
    std::vector<float> flat;  ///< All its gradients, one after the other.
    lab::Work work;
  };

  void gradient_came(size_t b) {
    --buckets_[b].pending;
    while (next_ < buckets_.size() && buckets_[next_].pending == 0) send(buckets_[next_++]);
  }

  void send(Bucket& bucket) {
    auto to = bucket.flat.begin();
    for (const auto& parameter : bucket.parameters) {
      auto& gradient = parameter.mutable_grad();
      if (!gradient.defined()) gradient = torch::zeros_like(parameter);
      const auto values = lab::floats(gradient);
      to = std::copy(values.begin(), values.end(), to);
    }
    bucket.work =
        rank_.start([&bucket](lab::Rank& stream) { lab::collectives().all_reduce(stream, bucket.flat); });
  }

  lab::Rank& rank_;
  std::vector<Bucket> buckets_;
  size_t next_ = 0;  ///< The bucket to be sent next.
  std::vector<lab::GradientHook> hooks_;
};

}  // namespace my_work
