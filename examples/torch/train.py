#!/usr/bin/env python3
"""Train from a mount, on any number of ranks and DataLoader workers.

    lsiofs mount DATASET MNT --batch 4 --tail drop
    torchrun --nproc-per-node 2 train.py MNT --batch 4 --loader-workers 2

DATASET is JSONL here, lines like {"x": [1, 2], "y": 3}. torchrun sets RANK, WORLD_SIZE and MASTER_ADDR
for each rank; examples/kubernetes/ranks.yaml does the same with one pod per rank.

Worker w of rank r reads file w·R + r of W = workers·R. The mount assigns batches
of --batch records to the files in turn, and a DataLoader takes one batch from each
of its workers in turn. So step k of all ranks together is always the same part of
the epoch, k·R·B to (k+1)·R·B, whatever the number of ranks and workers.

So it is enough to save the epoch and the number of samples that all ranks have
trained on: data.state_dict(samples, epoch). Nothing is written to the mount, and
the workers' readahead does not matter. Rank 0 saves both with the model. If a rank
is lost, all restart at the last save.

A single program on one machine can create the mount itself:
with lsiofs.mount(DATASET, batch=4, tail="drop") as data.
"""

import argparse
import os
import sys
import time

import lsiofs
import torch
from torch.utils.data import DataLoader


def decode(sample):
    return torch.tensor(sample["x"], dtype=torch.float32), torch.tensor(float(sample["y"]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("mount")
    p.add_argument("--batch", type=int, default=4, help="the mount's --batch")
    p.add_argument("--loader-workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--steps", type=int, help="stop after so many steps, as if interrupted")
    p.add_argument("--save", default="model.pt")
    p.add_argument("--save-every", type=int, metavar="STEPS", help="and at the end; default: at the end")
    p.add_argument("--pause", type=float, default=0, help="seconds after a step, as if it took so long")
    p.add_argument("--log", help="append epoch, samples before, and targets of every batch to this file; - prints them")
    a = p.parse_args()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

    together = "MASTER_ADDR" in os.environ  # where ranks connect
    if together:
        torch.distributed.init_process_group("gloo")  # nccl with GPUs

    data = lsiofs.open(a.mount)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    if os.path.exists(a.save):
        saved = torch.load(a.save)
        model.load_state_dict(saved["model"])
        data.load_state_dict(saved["data"])
    epoch, samples = data.position
    trained = torch.nn.parallel.DistributedDataParallel(model) if together else model

    def save():
        if rank == 0:
            torch.save({"model": model.state_dict(), "data": data.state_dict(samples, epoch)}, a.save + ".tmp")
            os.replace(a.save + ".tmp", a.save)

    log = sys.stdout if a.log == "-" else open(a.log or os.devnull, "a")
    print("begins at", epoch, samples, file=log, flush=True)

    steps = 0
    dataset = data.torch(decode, rank=rank, ranks=ranks)
    loader = DataLoader(dataset, batch_size=a.batch, num_workers=a.loader_workers)
    while epoch < a.epochs and steps != a.steps:
        dataset.set_epoch(epoch, samples)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(trained(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()  # averages the gradients of several ranks
            optimizer.step()
            print("trained on", epoch, samples, *[int(v) for v in y], file=log, flush=True)

            samples += a.batch * ranks
            steps += 1
            if steps == a.steps:
                break
            if a.save_every and steps % a.save_every == 0:
                save()
            time.sleep(a.pause)
        else:
            epoch, samples = epoch + 1, 0

    save()


if __name__ == "__main__":
    main()
