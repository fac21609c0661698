"""What the ranks of PyTorch have in common, whichever benchmark asks them: weights and batches from files, and one line
of JSON as the answer to each question; asleep in between.
"""
import json
import math
import os
import sys

import torch
import torch.distributed as dist


def numbers(folder, name, shape):
    size = 1
    for extent in shape:
        size *= extent
    mapped = torch.from_file(os.path.join(folder, name), shared=False, size=size, dtype=torch.float32)
    return mapped.clone().view(shape)


def value(number):
    """JSON has no word for what is not finite: null."""
    return number if math.isfinite(number) else None


def hello():
    return {
        "version": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "coretype": os.environ.get("OPENBLAS_CORETYPE", ""),
    }


def answer_questions(build):
    """The life of a rank. build(folder, request, question) makes what is trained, by the name of its system: None if
    questions name none. It has check(question) and time(question).
    """
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
            return hello()
        if question["do"] == "build":
            trainings.clear()  # the old model goes before the new one comes
            trainings.update(build(folder, request, question))
            return {}
        training = trainings[question.get("system")]
        return training.check(question) if question["do"] == "check" else training.time(question)

    for line in questions:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)
    dist.destroy_process_group()
