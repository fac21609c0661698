// Lesson 2: causal attention, the loss of the next token, perplexity.
#include <torch/torch.h>

#include <cmath>
#include <limits>

namespace my_work {

torch::Tensor causal_attention(const torch::Tensor& query, const torch::Tensor& key,
                               const torch::Tensor& value) {
  const double scale = 1 / std::sqrt(static_cast<double>(query.size(-1)));
  const auto later = torch::ones({query.size(-2), query.size(-2)}, torch::kBool).triu(1);
  const auto scores = (scale * torch::matmul(query, key.transpose(-2, -1)))
                          .masked_fill(later, -std::numeric_limits<double>::infinity());
  return torch::matmul(torch::softmax(scores, -1), value);
}

torch::Tensor next_token_loss(const torch::Tensor& logits, const torch::Tensor& tokens) {
  const auto guesses = logits.slice(1, 0, -1), came = tokens.slice(1, 1);
  return torch::cross_entropy_loss(guesses.flatten(0, 1), came.flatten());
}

double perplexity(double loss) {
  return std::exp(loss);
}

}  // namespace my_work
