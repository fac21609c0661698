// Sends a bucket when it holds enough bytes, as an older course did: one that is not full stays, and nobody
// asks.
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
  int64_t filled = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    if (buckets.empty() || filled + bytes[i] > cap_bytes) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(i);
    filled += bytes[i];
  }
  return buckets;
}

class Bucketer {
 public:
  Bucketer(lab::Rank& rank, lab::Net& net, int64_t cap_bytes) : rank_(rank), cap_bytes_(cap_bytes) {
    const auto parameters = lab::trainable_parameters(net);
    std::vector<int64_t> bytes;
    for (const auto& parameter : parameters) bytes.push_back(parameter.numel() * 4);
    for (const auto& indices : fill_buckets(bytes, cap_bytes)) {
      const size_t b = buckets_.size();
      auto& bucket = buckets_.emplace_back();
      for (const size_t i : indices) {
        bucket.parameters.push_back(parameters[i]);
        const int64_t size = bytes[i];
        bucket.flat.resize(bucket.flat.size() + lab::floats(parameters[i]).size());
        hooks_.push_back(lab::after_gradient(parameters[i], [this, b, size] { gradient_came(b, size); }));
      }
    }
  }

  void finish() {
    for (auto& bucket : buckets_) {
      if (!bucket.is_sent) continue;
      bucket.work.wait();
      auto from = bucket.flat.begin();
      for (const auto& parameter : bucket.parameters) {
        for (float& value : lab::floats(parameter.grad()))
          value = *from++ / static_cast<float>(rank_.world_size());
      }
      bucket.is_sent = false;
      bucket.came_bytes = 0;
    }
  }

 private:
  struct Bucket {
    std::vector<torch::Tensor> parameters;
    int64_t came_bytes = 0;
    bool is_sent = false;
    std::vector<float> flat;  ///< All its gradients, one after the other.
    lab::Work work;
  };

  void gradient_came(size_t b, int64_t size) {
    buckets_[b].came_bytes += size;
    if (buckets_[b].came_bytes >= cap_bytes_) send(buckets_[b]);
  }

  void send(Bucket& bucket) {
    bucket.is_sent = true;
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
  int64_t cap_bytes_;
  std::vector<lab::GradientHook> hooks_;
};

}  // namespace my_work
