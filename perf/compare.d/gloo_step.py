#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gloo_step.py BYTES OPTIMIZER MILLISECONDS: a training step of PyTorch's without a parameter server.

Two processes, each with a flat parameter and its gradient: gloo's all_reduce sums the gradients, and
torch.optim takes the step in each. The division by two is left out, and each process has one thread, as
there is a core for each. Prints one JSON object: rank 0's times of a step.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

WARMUP, STEPS_MIN, STEPS_MAX = 5, 5, 200000
RANKS = 2


def optimizer(torch, name, weights):
    if name == "sgd":
        return torch.optim.SGD([weights], lr=2**-10)
    if name == "adam":
        return torch.optim.Adam([weights], lr=2**-10)
    sys.exit(f"gloo_step.py: optimizer {name}: sgd or adam")


def run(rank, store, size, name, milliseconds):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    weights = torch.nn.Parameter(torch.zeros(size // 4))
    weights.grad = torch.full_like(weights, 2**-10)
    opt = optimizer(torch, name, weights)

    def step():
        began = time.perf_counter()
        dist.all_reduce(weights.grad)
        opt.step()
        return (time.perf_counter() - began) * 1e6

    step()
    if not (weights[0] < 0 and weights[0] == weights[-1]):
        sys.exit("gloo_step.py: the weights did not move")
    # In place, a sum would double with each step; that of zeros takes the same time.
    weights.grad.zero_()
    took = sum(step() for _ in range(WARMUP)) / WARMUP
    count = torch.tensor([max(STEPS_MIN, min(STEPS_MAX, int(milliseconds * 1000 / took)))])
    dist.broadcast(count, 0)
    us = sorted(step() for _ in range(int(count)))
    dist.barrier()
    if rank == 0:
        p50, p99 = us[(len(us) - 1) // 2], us[(len(us) - 1) * 99 // 100]
        print(json.dumps({"p50_us": p50, "p99_us": p99, "samples": len(us)}))


def main():
    if len(sys.argv) not in (4, 6):
        sys.exit("usage: gloo_step.py BYTES OPTIMIZER MILLISECONDS")
    size, name, milliseconds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if len(sys.argv) == 6:  # the second process
        run(int(sys.argv[4]), sys.argv[5], size, name, milliseconds)
        return
    # Before torch is loaded, which reads them.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        other = subprocess.Popen([sys.executable, *sys.argv, "1", store])
        try:
            run(0, store, size, name, milliseconds)
            if other.wait(60):
                sys.exit("gloo_step.py: the second process failed")
        finally:
            other.kill()
            other.wait()


if __name__ == "__main__":
    main()
