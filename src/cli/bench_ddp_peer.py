"""The ranks of PyTorch's DistributedDataParallel on Gloo, for `lockstep bench ddp`.

usage: bench_ddp_peer.py FOLDER, by a launcher that sets torchrun's environment. Takes the weights and batches that
Lockstep's ranks wrote to FOLDER, and answers the questions of the benchmark, one line of JSON each; asleep in between.
"""
import json
import math
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def numbers(folder, name, shape):
    size = 1
    for extent in shape:
        size *= extent
    mapped = torch.from_file(os.path.join(folder, name), shared=False, size=size, dtype=torch.float32)
    return mapped.clone().view(shape)


def value(loss):
    """JSON has no word for what is not finite: null."""
    number = loss.item()
    return number if math.isfinite(number) else None


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
        losses = [value(self.step()) for _ in range(question["steps"])]
        weights = sum(parameter.double().sum().item() for parameter in self.ddp.parameters())
        return {"losses": losses, "weights": weights if math.isfinite(weights) else None}

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
        return {"step_ms": taken * 1e3 / question["steps"], "exposed_ms": exposed_ns * 1e-6, "loss": value(loss)}


def main():
    folder = sys.argv[1]
    rank = os.environ["RANK"]
    with open(os.path.join(folder, "request.json")) as stream:
        request = json.load(stream)
    # Pipes first: the benchmark sees the end of a rank that fails before it asks anything.
    questions = open(os.path.join(folder, f"pytorch-{rank}.question"))
    answers = open(os.path.join(folder, f"pytorch-{rank}.answer"), "w")
    dist.init_process_group("gloo")
    trainings = {}

    def answer(question):
        if question["do"] == "hello":
            return {
                "version": torch.__version__,
                "threads": torch.get_num_threads(),
                "cpus": sorted(os.sched_getaffinity(0)),
                "coretype": os.environ.get("OPENBLAS_CORETYPE", ""),
            }
        if question["do"] == "build":
            trainings.clear()  # the old model goes before the new one comes
            for system, views in (("pytorch-ddp", False), ("pytorch-ddp-views", True)):
                if system in question["systems"]:
                    trainings[system] = Training(folder, request, question["model"], views)
            return {}
        training = trainings[question["system"]]
        return training.check(question) if question["do"] == "check" else training.time(question)

    for line in questions:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
