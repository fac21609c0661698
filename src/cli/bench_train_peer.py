"""The ranks of a small GPT under PyTorch's DistributedDataParallel on Gloo, for `lockstep bench train`.

usage: bench_train_peer.py FOLDER, by a launcher that sets torchrun's environment. Takes the weights and batches that
Lockstep's ranks wrote to FOLDER, and answers the questions of the benchmark, one line of JSON each; asleep in between.
"""
import sys
import time
from collections import OrderedDict

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.dont_write_bytecode = True  # nothing comes to lie beside installed files
from bench_peer import answer_questions, numbers, value


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.token = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.position = nn.Embedding(config["max_position_embeddings"], config["hidden_size"])
        self.register_buffer("places", torch.arange(config["max_position_embeddings"]), persistent=False)

    def forward(self, tokens):
        return self.token(tokens) + self.position(self.places[: tokens.size(1)])


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, length = config["hidden_size"], config["max_position_embeddings"]
        self.heads = config["num_attention_heads"]
        self.attention_norm = nn.LayerNorm(width, eps=config["layer_norm_eps"])
        self.attention_qkv = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width, eps=config["layer_norm_eps"])
        self.mlp_in = nn.Linear(width, config["intermediate_size"])
        self.mlp_out = nn.Linear(config["intermediate_size"], width)
        # Added to scores. Of floats: Gloo sends no booleans, and DDP sends all buffers once.
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1), persistent=False)

    def attention(self, x):
        batch, length, width = x.shape
        depth = width // self.heads
        query, key, val = (
            part.view(batch, length, self.heads, depth).transpose(1, 2)
            for part in self.attention_qkv(x).split(width, dim=2)
        )
        scores = (query * depth**-0.5) @ key.transpose(-2, -1)
        weights = F.softmax(scores + self.mask[:length, :length], dim=-1)
        return self.attention_out((weights @ val).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp_out(F.gelu(self.mlp_in(self.mlp_norm(x))))


class Head(nn.Module):
    def __init__(self, config, weight):
        super().__init__()
        self.norm = nn.LayerNorm(config["hidden_size"], eps=config["layer_norm_eps"])
        self.weight = weight  # the token embedding's own

    def forward(self, x):
        return F.linear(self.norm(x), self.weight)


def make_model(folder, config, names):
    embeddings = Embeddings(config)
    blocks = [(f"block{i}", Block(config)) for i in range(config["num_hidden_layers"])]
    head = Head(config, embeddings.token.weight)
    model = nn.Sequential(OrderedDict([("embeddings", embeddings), *blocks, ("head", head)]))
    sizes = [torch.Size(shape).numel() for _, shape in names]
    parts = numbers(folder, "weights.f32", [sum(sizes)]).split(sizes)
    weights = {name: part.view(shape) for (name, shape), part in zip(names, parts)}
    model.load_state_dict({**weights, "head.weight": weights["embeddings.token.weight"]})
    return model


class Training:
    def __init__(self, folder, request, names):
        config, settings = request["config"], request["settings"]
        share = settings["batch"] // dist.get_world_size()
        shape = [request["batches"], share, config["max_position_embeddings"]]
        self.inputs = numbers(folder, f"inputs-{dist.get_rank()}.f32", shape).long()
        self.targets = numbers(folder, f"targets-{dist.get_rank()}.f32", shape).long()
        model = make_model(folder, config, names)
        # Buffers never change: without this they would be sent in every step.
        self.ddp = DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True)
        matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
        others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": settings["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
            lr=settings["lr"],
            betas=(0.9, 0.99),
        )
        self.clip = settings["clip"]
        self.steps = 0

    def step(self):
        batch = self.steps % len(self.inputs)
        self.steps += 1
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.ddp(self.inputs[batch])
        loss = F.cross_entropy(logits.flatten(0, 1), self.targets[batch].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(self.ddp.parameters(), self.clip)
        self.optimizer.step()
        return loss.item()

    def check(self, question):
        losses = [value(self.step()) for _ in range(question["steps"])]
        weights = sum(parameter.double().sum().item() for parameter in self.ddp.parameters())
        return {"losses": losses, "weights": value(weights)}

    def time(self, question):
        dist.barrier()
        for _ in range(question["warm_up"]):
            self.step()
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(question["steps"]):
            self.step()
        return {"round_ms": (time.perf_counter() - begin) * 1e3}


def build(folder, request, question):
    return {None: Training(folder, request, question["weights"])}


if __name__ == "__main__":
    answer_questions(build)
