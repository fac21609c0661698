// Lesson 2: the part of a transformer where tokens look at each other, and the loss that makes it learn.
//
// Attention mixes each position's value with those before it. It must not see what comes after: that is
// what the model is asked to guess. And the loss compares each guess with the token that came next.
//
// What you have: torch::matmul, tensor.transpose(-2, -1), tensor.size(-1), torch::ones, tensor.triu,
//                tensor.masked_fill, torch::softmax(tensor, dim), tensor.slice(dim, begin, end),
//                tensor.flatten(first, last), torch::cross_entropy_loss(logits [n, vocabulary], tokens [n]),
//                std::sqrt, std::exp, std::numeric_limits.
// The lesson:    lockstep lab read 2
// Your verdict:  lockstep lab check 2
// A hint:        lockstep lab hint 2
#include <torch/torch.h>

#include <cmath>
#include <limits>

namespace my_work {

/// query, key and value are [batch, heads, length, width], and so is the result: at each position a mean of
/// the values at this position and before, weighed by how well their keys answer its query.
torch::Tensor causal_attention(const torch::Tensor& query, const torch::Tensor& key,
                               const torch::Tensor& value) {
  // 1. Scores [batch, heads, length, length]: each query times each key, divided by the root of the width.
  // 2. A query must not see keys of later positions: such scores are minus infinity.
  // 3. Softmax: the weights of one query sum to 1.
  // 4. Weights times values.
  (void)query;
  (void)key;
  return value;
}

/// logits [batch, length, vocabulary]: at position t, guesses for the token at t + 1. tokens [batch, length].
/// The mean of -ln p of the tokens that came; the logits at the last position have nothing to guess.
torch::Tensor next_token_loss(const torch::Tensor& logits, const torch::Tensor& tokens) {
  (void)tokens;
  return 0 * logits.sum();
}

/// How many equally likely tokens would be as hard to guess.
double perplexity(double loss) {
  return loss;
}

}  // namespace my_work
