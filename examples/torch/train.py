#!/usr/bin/env python3
"""Train from a mount, on any number of ranks and DataLoader workers.

    lsiofs mount DATASET MNT --batch 4 --tail drop
    RANK=0 WORLD_SIZE=2 ./train.py MNT --batch 4 --loader-workers 2 &
    RANK=1 WORLD_SIZE=2 ./train.py MNT --batch 4 --loader-workers 2

DATASET is JSONL here, lines like {"x": [1, 2], "y": 3}.

Worker w of rank r reads file w·R + r of W = workers·R. The mount deals batches
of --batch records to the files in turn, and a DataLoader takes a batch from each
of its workers in turn; so step k of all ranks together is always the same
stretch of the epoch, k·R·B to (k+1)·R·B, however many ranks and workers there are.

So all that has to be saved is the epoch and the number of samples that all ranks
have trained on. The files of that place have a name: epoch-E/from-M. Nothing is
written to the mount, and what the workers had read ahead does not matter. (The
same two numbers, written to MNT/checkpoint, move the files MNT/worker-*.)
"""

import argparse
import json
import os

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, place, rank, ranks):
        self.place, self.rank, self.ranks = place, rank, ranks

    def __iter__(self):
        me = get_worker_info()
        file, files = me.id * self.ranks + self.rank, me.num_workers * self.ranks
        with open(f"{self.place}/worker-{file}-of-{files}.jsonl", "rb") as f:
            for line in f:
                record = json.loads(line)
                yield torch.tensor(record["x"], dtype=torch.float32), torch.tensor(float(record["y"]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("mount")
    p.add_argument("--batch", type=int, default=4, help="the mount's --batch")
    p.add_argument("--loader-workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--steps", type=int, help="stop after so many steps, as if interrupted")
    p.add_argument("--save", default="model.pt")
    p.add_argument("--log", help="append the targets of every batch to this file")
    a = p.parse_args()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    position = {"epoch": 0, "samples": 0}
    if os.path.exists(a.save):
        saved = torch.load(a.save)
        model.load_state_dict(saved["model"])
        position = saved["position"]

    steps = 0
    while position["epoch"] < a.epochs:
        place = f"{a.mount}/epoch-{position['epoch']}/from-{position['samples']}"
        for x, y in DataLoader(Stream(place, rank, ranks), batch_size=a.batch, num_workers=a.loader_workers):
            loss = torch.nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # with several ranks: DistributedDataParallel averages here
            if a.log:
                with open(a.log, "a") as f:
                    print(position["epoch"], *[int(v) for v in y], file=f)

            position["samples"] += a.batch * ranks
            steps += 1
            if steps == a.steps:
                break
        if steps == a.steps:
            break
        position = {"epoch": position["epoch"] + 1, "samples": 0}  # the next epoch, by name

    if rank == 0:
        torch.save({"model": model.state_dict(), "position": position}, a.save + ".tmp")
        os.replace(a.save + ".tmp", a.save)


if __name__ == "__main__":
    main()
