// A training loop with nothing hidden: a small GPT learns the built-in grammar, whose entropy H is known, so
// that the loss has a floor to be read against. One process or many: the loop is the same.
//
//   build/release/bin/example_train_tiny_transformer --epochs 2
//   lockstep run --nproc-per-node 2 build/release/bin/example_train_tiny_transformer --config
//   config/config.json
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr size_t kSamples = 2048, kBatch = 32;  // of an epoch, and of a step on all ranks together
constexpr uint64_t kTrain = 1, kUnseen = 2;     // streams of the grammar

/// [B, T + 1] tokens, each row from the beginning of a sentence: the newline ends the one before.
torch::Tensor make_rows(const lockstep::Grammar& grammar, const lockstep::Tokenizer& tokenizer,
                        uint64_t stream, const std::vector<size_t>& indices, int64_t length) {
  std::vector<int32_t> tokens;
  for (const size_t index : indices) {
    const std::string text = grammar.sample(stream, index, static_cast<size_t>(length));
    const auto row = tokenizer.encode(std::string("\n").append(text));
    tokens.insert(tokens.end(), row.begin(), row.end());
  }
  return torch::tensor(tokens, torch::kLong).view({-1, length + 1});
}

/// The likeliest token, again and again.
std::string write_on(lockstep::TinyTransformer& model, const lockstep::Tokenizer& tokenizer, int64_t count) {
  std::vector<int32_t> tokens = tokenizer.encode("\n");
  for (int64_t i = 0; i < count; ++i) {
    const auto logits = model->forward(torch::tensor(tokens, torch::kLong).unsqueeze(0));
    tokens.push_back(logits[0][-1].argmax().item<int32_t>());
  }
  return tokenizer.decode(tokens);
}

}  // namespace

int main(int argc, char** argv) {
  size_t epochs = 2;
  lockstep::TransformerConfig config;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 < argc && flag == "--epochs" && std::atol(argv[i + 1]) > 0) {
      epochs = std::strtoul(argv[i + 1], nullptr, 10);
    } else if (i + 1 < argc && flag == "--config") {
      config = lockstep::read_config(argv[i + 1]);
    } else {
      std::fprintf(stderr, "usage: %s [--epochs N] [--config FILE]\n", argv[0]);
      return 2;
    }
  }

  auto comm = lockstep::init_distributed();  // alone, it is a world of one
  const lockstep::Grammar grammar;
  const auto tokenizer = lockstep::Tokenizer::characters(grammar.alphabet());
  config.vocab_size = tokenizer.vocab_size();
  const int64_t length = config.max_position_embeddings;
  const double entropy = grammar.entropy(static_cast<size_t>(length));

  lockstep::TinyTransformer model(config, /*seed=*/0);
  lockstep::DistributedDataParallel ddp(model, comm);
  lockstep::FusedAdam optimizer(ddp.parameters(), 3e-3);
  lockstep::DistributedSampler sampler(kSamples, {.rank = comm.rank(), .world_size = comm.world_size()});

  const auto share = std::max<size_t>(1, kBatch / static_cast<size_t>(comm.world_size()));
  int64_t step = 0;
  double first = 0, last = 0;
  for (size_t epoch = 0; epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch);  // another order
    while (const auto mine = sampler.next(share)) {
      const auto rows = make_rows(grammar, tokenizer, kTrain, *mine, length);
      // The label shift: the token to guess at place t is the one at t + 1.
      const auto inputs = rows.narrow(1, 0, length), labels = rows.narrow(1, 1, length);
      optimizer.zero_grad();
      const auto logits = ddp.forward(inputs);  // [B, T, vocab_size]
      auto loss = lockstep::next_token_loss(logits, labels);
      loss.backward();  // leaves the mean of all ranks' gradients
      optimizer.step();

      loss = loss.detach();
      comm.all_reduce(loss, lockstep::ReduceOp::kMean);
      last = loss.item<double>();
      if (step == 0) first = last;
      if (++step % 16 == 0 && comm.rank() == 0) {
        std::printf("epoch %zu  step %3ld  loss %.4f  H %.4f\n", epoch + 1, static_cast<long>(step), last,
                    entropy);
      }
    }
  }

  const torch::NoGradGuard no_grad;
  model->eval();
  lockstep::DistributedSampler all(/*size=*/64, {.shuffle = false});
  const auto rows = make_rows(grammar, tokenizer, kUnseen, *all.next(64), length);
  const auto inputs = rows.narrow(1, 0, length);
  const auto logits = model->forward(inputs);
  const double unseen = lockstep::next_token_loss(logits, rows.narrow(1, 1, length)).item<double>();
  // The causal mask: the input holds every label but the last, one place to the right. A place that saw it
  // would only copy, and the loss would fall through H. So another last token must change nothing before it.
  auto other = inputs.clone();
  other.select(1, length - 1).fill_(tokenizer.encode("\n").front());
  const bool causal = torch::allclose(model->forward(other).narrow(1, 0, length - 1),
                                      logits.narrow(1, 0, length - 1), 1e-4, 1e-4);
  if (comm.rank() != 0) return 0;
  std::printf("loss %.4f at first, %.4f at last, %.4f on unseen text; no model gets below %.4f\n", first,
              last, unseen, entropy);
  std::printf("a place %s what comes after it\n", causal ? "does not see" : "SEES");
  std::printf("it writes:%s\n", write_on(model, tokenizer, length - 1).c_str());
  return unseen < 0.7 * first && unseen > 0.9 * entropy && causal ? 0 : 1;
}
