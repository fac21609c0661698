"""The ranks of PyTorch's DistributedDataParallel on Gloo, for `lockstep bench ddp`.

usage: bench_ddp_peer.py FOLDER, by a launcher that sets torchrun's environment. Takes the weights and batches that
Lockstep's ranks wrote to FOLDER, and answers the questions of the benchmark, one line of JSON each; asleep in between.
"""
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.dont_write_bytecode = True  # nothing comes to lie beside installed files
from bench_peer import answer_questions, numbers, value


def full_mlp(folder, index, model):
    layers = []
    for layer in range(model["depth"]):
        layers += [nn.ReLU()] if layer > 0 else []
        layers.append(nn.Linear(model["dim"], model["dim"]))
    module = nn.Sequential(*layers)
    count = sum(parameter.numel() for parameter in module.parameters())
    weights = numbers(folder, f"weights-{index}.f32", [count])
    with torch.no_grad():
        for parameter, part in zip(module.parameters(), weights.split([p.numel() for p in module.parameters()])):
            parameter.copy_(part.view_as(parameter))
    return module


def make_optimizer(request, parameters):
    if request["optimizer"] == "sgd":
        return torch.optim.SGD(parameters, lr=request["lr"], momentum=0.9)
    return torch.optim.Adam(parameters, lr=request["lr"])


class Training:
    """One model under one setting of DistributedDataParallel."""

    def __init__(self, folder, request, index, views):
        model = request["models"][index]
        shape = [request["batches"], model["batch"], model["dim"]]
        self.inputs = numbers(folder, f"inputs-{index}-{dist.get_rank()}.f32", shape)
        self.targets = numbers(folder, f"targets-{index}-{dist.get_rank()}.f32", shape)
        self.ddp = DistributedDataParallel(
            full_mlp(folder, index, model), gradient_as_bucket_view=views, bucket_cap_mb=request["bucket_cap_mib"]
        )
        self.optimizer = make_optimizer(request, self.ddp.parameters())
        self.loss_of = nn.MSELoss()
        self.steps = 0

    def step(self):
        batch = self.steps % len(self.inputs)
        self.steps += 1
        self.optimizer.zero_grad()
        loss = self.loss_of(self.ddp(self.inputs[batch]), self.targets[batch])
        loss.backward()
        self.optimizer.step()
        return loss

    def check(self, question):
        losses = [value(self.step().item()) for _ in range(question["steps"])]
        weights = sum(parameter.double().sum().item() for parameter in self.ddp.parameters())
        return {"losses": losses, "weights": value(weights)}

    def time(self, question):
        dist.barrier()
        # DDP clocks its own communication, which costs time: in the steps before those that count.
        self.ddp._set_ddp_runtime_logging_sample_rate(1)
        for _ in range(question["warm_up"]):
            self.step()
        log = self.ddp._get_ddp_logging_data()
        self.ddp._set_ddp_runtime_logging_sample_rate(1 << 30)
        exposed_ns = log.get("backward_comm_time", 0) - log.get("backward_compute_comm_overlap_time", 0)
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(question["steps"]):
            loss = self.step()
        taken = time.perf_counter() - begin
        return {"step_ms": taken * 1e3 / question["steps"], "exposed_ms": exposed_ns * 1e-6, "loss": value(loss.item())}


def build(folder, request, question):
    return {
        system: Training(folder, request, question["model"], views)
        for system, views in (("pytorch-ddp", False), ("pytorch-ddp-views", True))
        if system in question["systems"]
    }


if __name__ == "__main__":
    answer_questions(build)
