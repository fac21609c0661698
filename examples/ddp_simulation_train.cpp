// Several GPUs simulated on one CPU: each rank is a process, as on a cluster, and a share of the cores stands
// for its GPU; nothing else is pretended. Each has a copy of the model and its own part of the data, and all
// average their gradients. Compare logs/rank_0/train.log with logs/rank_1/train.log: why do the losses of a
// step differ, and why only a little?
//
//   lockstep run --nproc-per-node 2 build/release/bin/example_ddp_simulation_train --epochs 2
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr size_t kSamples = 1024, kBatch = 32;  // of an epoch, and of a step on all ranks together
constexpr int64_t kLength = 32;

/// Whether the ranks together drew every sample, and none twice but for what fills up the last round.
bool data_is_split(lockstep::DataParallelComms& comms, const std::vector<int64_t>& mine) {
  const auto all = torch::cat(comms.all_gather(torch::tensor(mine)));
  const auto times = torch::bincount(all, /*weights=*/{}, kSamples);
  return times.min().item<int64_t>() == 1 &&
         all.numel() - static_cast<int64_t>(kSamples) < comms.world_size();
}

/// Whether all ranks have the same weights, bit by bit.
bool weights_are_equal(lockstep::DataParallelComms& comms, const lockstep::TinyTransformer& model) {
  bool equal = true;
  for (const auto& parameter : model->parameters()) {
    const auto mine = parameter.detach();
    for (const auto& theirs : comms.all_gather(mine)) equal = equal && torch::equal(theirs, mine);
  }
  return equal;
}

}  // namespace

int main(int argc, char** argv) {
  size_t epochs = 2;
  std::filesystem::path logs = "logs";
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 < argc && flag == "--epochs" && std::atol(argv[i + 1]) > 0) {
      epochs = std::strtoul(argv[i + 1], nullptr, 10);
    } else if (i + 1 < argc && flag == "--logs") {
      logs = argv[i + 1];
    } else {
      std::fprintf(stderr, "usage: %s [--epochs N] [--logs FOLDER]\n", argv[0]);
      return 2;
    }
  }

  lockstep::DataParallelComms comms(lockstep::init_distributed());
  const auto share = std::max<size_t>(1, kBatch / static_cast<size_t>(comms.world_size()));
  logs /= "rank_" + std::to_string(comms.rank());
  std::filesystem::create_directories(logs);
  std::ofstream log(logs / "train.log");

  const lockstep::Grammar grammar;
  const auto tokenizer = lockstep::Tokenizer::characters(grammar.alphabet());
  const lockstep::TransformerConfig config = {.vocab_size = tokenizer.vocab_size(),
                                              .max_position_embeddings = kLength};
  lockstep::TinyTransformer model(config, /*seed=*/0);  // the same seed: the same weights on all ranks
  lockstep::FusedAdam optimizer(model->parameters(), 3e-3);
  lockstep::DistributedSampler sampler(kSamples, {.rank = comms.rank(), .world_size = comms.world_size()});

  int64_t step = 0, differing = 0;
  double first = 0, last = 0;
  bool split = true;
  for (size_t epoch = 0; epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch);
    std::vector<int64_t> drawn;
    while (const auto mine = sampler.next(share)) {
      std::vector<int32_t> tokens;
      for (const size_t index : *mine) {
        const auto row =
            tokenizer.encode(std::string("\n").append(grammar.sample(/*seed=*/0, index, kLength)));
        tokens.insert(tokens.end(), row.begin(), row.end());
      }
      const auto rows = torch::tensor(tokens, torch::kLong).view({-1, kLength + 1});
      drawn.insert(drawn.end(), mine->begin(), mine->end());

      optimizer.zero_grad();
      const auto loss = model->forward(rows.narrow(1, 0, kLength), rows.narrow(1, 1, kLength));
      loss.backward();                             // of this rank's samples alone, until ...
      lockstep::average_gradients(*model, comms);  // ... all ranks have the mean: an all-reduce for each
      optimizer.step();                            // equal weights, equal gradients: equal weights again

      const auto losses = torch::stack(comms.all_gather(loss.detach()));
      last = losses.mean().item<double>();
      if (++step == 1) first = last;
      if (!losses.eq(losses[0]).all().item<bool>()) ++differing;
      log << "step " << step << " loss " << loss.item<double>() << " mean " << last << " samples";
      for (const size_t index : *mine) log << ' ' << index;
      log << '\n';
      if (comms.rank() != 0 || step % 8 != 0) continue;
      std::printf("step %3ld  mean %.4f", static_cast<long>(step), last);
      for (int r = 0; r < comms.world_size(); ++r) std::printf("  rank %d %.4f", r, losses[r].item<double>());
      std::printf("\n");
    }
    split = split && data_is_split(comms, drawn);
  }

  const bool equal = weights_are_equal(comms, model);
  const bool differ = comms.world_size() == 1 || differing > step / 2;
  if (comms.rank() == 0) {
    std::printf("losses differ between ranks in %ld of %ld steps; the data are%s split; the weights are %s\n",
                static_cast<long>(differing), static_cast<long>(step), split ? "" : " NOT",
                equal ? "equal, bit by bit" : "NOT equal");
    std::fflush(stdout);
  }
  comms.barrier();  // a rank that fails ends the others, also one that has not spoken yet
  return split && equal && differ && last < 0.8 * first && log.flush() ? 0 : 1;
}
