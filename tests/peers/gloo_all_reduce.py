"""An ordinary torch.distributed script: nothing in it knows of Lockstep."""
import os
import signal
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert rank == int(os.environ["RANK"]) and world == int(os.environ["WORLD_SIZE"])
value = torch.tensor([float(rank + 1)])
dist.all_reduce(value)
assert value.item() == world * (world + 1) / 2, value
print(f"rank {rank} of {world}: sum {value.item():g}, {torch.get_num_threads()} threads", flush=True)
if "--fail" in sys.argv:
    if rank == 1:
        raise RuntimeError("a failure of rank 1")
    # Not a barrier: it fails when rank 1 closes its connections, which it does before it is gone.
    signal.pause()
dist.barrier()
dist.destroy_process_group()
