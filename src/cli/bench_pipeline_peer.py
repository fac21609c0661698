"""The ranks of a plain 1F1B loop on torch.distributed and Gloo, for `lockstep bench pipeline`.

usage: bench_pipeline_peer.py FOLDER, by a launcher that sets torchrun's environment. Takes the weights and the batch
that Lockstep's ranks wrote to FOLDER, and answers the questions of the benchmark, one line of JSON each; asleep in
between. Rank r holds stage r. Shapes are known beforehand. Sends do not wait; receives do.
"""
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

sys.dont_write_bytecode = True  # nothing comes to lie beside installed files
from bench_peer import answer_questions, numbers, value


def even(total, parts):
    """As even as possible, longer ones first."""
    return [total // parts + (1 if part < total % parts else 0) for part in range(parts)]


def make_stage(folder, model, rank, world):
    """The layers of a rank, each with the ReLU that follows it in the whole model."""
    dim, depth = model["dim"], model["depth"]
    weights = numbers(folder, "weights.f32", [depth, dim * dim + dim])
    sizes = even(depth, world)
    begin = sum(sizes[:rank])
    layers = []
    for number in range(begin, begin + sizes[rank]):
        layer = nn.Linear(dim, dim)
        with torch.no_grad():
            layer.weight.copy_(weights[number, : dim * dim].view(dim, dim))
            layer.bias.copy_(weights[number, dim * dim :])
        layers += [layer] + ([nn.ReLU()] if number + 1 < depth else [])
    return nn.Sequential(*layers)


class Training:
    def __init__(self, folder, request):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        model = request["model"]
        self.stage = make_stage(folder, model, self.rank, self.world)
        self.optimizer = torch.optim.SGD(self.stage.parameters(), lr=0.01)
        sizes = even(model["batch"], request["microbatches"])
        shape = [model["batch"], model["dim"]]
        self.inputs = numbers(folder, "input.f32", shape).split(sizes)
        self.targets = numbers(folder, "target.f32", shape).split(sizes)
        self.shapes = [[size, model["dim"]] for size in sizes]
        self.shares = [size / model["batch"] for size in sizes]
        self.loss_of = nn.MSELoss()

    def forward(self, microbatch):
        if self.rank == 0:
            entry = self.inputs[microbatch]
        else:
            entry = torch.empty(self.shapes[microbatch])
            dist.recv(entry, self.rank - 1)
            entry.requires_grad_()
        out = self.stage(entry)
        if self.rank + 1 == self.world:
            out = self.loss_of(out, self.targets[microbatch]) * self.shares[microbatch]
            self.loss += out.item()
        else:
            self.sends.append((dist.isend(out.detach(), self.rank + 1), out))
        return entry, out

    def backward(self, microbatch, entry, out):
        if self.rank + 1 == self.world:
            out.backward()
        else:
            gradient = torch.empty(self.shapes[microbatch])
            dist.recv(gradient, self.rank + 1)
            out.backward(gradient)
        if self.rank > 0:
            self.sends.append((dist.isend(entry.grad, self.rank - 1), entry.grad))

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss, self.sends = 0.0, []
        count = len(self.inputs)
        warm_up = min(count, self.world - 1 - self.rank)
        kept = [self.forward(microbatch) for microbatch in range(warm_up)]
        for microbatch in range(warm_up, count):
            kept.append(self.forward(microbatch))
            self.backward(microbatch - warm_up, *kept.pop(0))
        for microbatch in range(count - warm_up, count):
            self.backward(microbatch, *kept.pop(0))
        for work, _ in self.sends:
            work.wait()

    def check(self, question):
        losses = []
        for _ in range(question["steps"]):
            self.step()
            losses.append(value(self.loss))
            self.optimizer.step()
        return {"losses": losses}

    def time(self, question):
        for _ in range(question["warm_up"]):
            self.step()
        begin_ns, end_ns = [], []
        for _ in range(question["steps"]):
            dist.barrier()
            begin_ns.append(time.monotonic_ns())
            self.step()
            end_ns.append(time.monotonic_ns())
        return {"begin_ns": begin_ns, "end_ns": end_ns, "loss": value(self.loss)}


def build(folder, request, question):
    return {None: Training(folder, request)}


if __name__ == "__main__":
    answer_questions(build)
