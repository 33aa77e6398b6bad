#!/usr/bin/env python3
"""Train on random crops of a Zarr array: the last image of each, from those before it.

    ./make.py sat.zarr
    lsiofs mount sat.zarr train --format zarr --array data --crop time=6,y=32,x=32 \\
        --stride time=3,y=16,x=16 --jitter --select time=0:288
    lsiofs mount sat.zarr valid --format zarr --array data --crop time=6,y=32,x=32 --select time=288:
    ./train.py train valid

Training and validation are mounts of two regions of time, so that no crop of one overlaps one of
the other. worker-W.crops.npy has the first element of each crop along each dimension, and coords/
has the coordinates of these elements: the model uses the hour of the day.

With --store sat.zarr, zarr-python reads the same crops, and the mounts only provide their
positions. The losses are the same; compare the times.
"""

import argparse
import json
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

CROP = (6, 32, 32)


class Crops(IterableDataset):
    """Yields the batches of a mount's epoch: images in Kelvin, and the time of the last one."""

    def __init__(self, mount, batch, store=None):
        self.mount, self.batch, self.store, self.epoch = mount, batch, store, 0
        with open(f"{mount}/dataset.json") as f:
            (field,) = json.load(f)["zarr"]["fields"]
        self.scale, self.offset = field["attributes"]["scale_factor"], field["attributes"]["add_offset"]
        self.times = np.load(f"{mount}/coords/time.npy")

    def __iter__(self):
        worker = get_worker_info()
        w, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        path = f"{self.mount}/epoch-{self.epoch}/worker-{w}-of-{workers}"
        where = np.load(path + ".crops.npy", mmap_mode="r")  # rows of cube, row, time, y, x
        if self.store:
            crops = ByZarrPython(self.store, where)
        else:
            crops = np.load(path + ".npy", mmap_mode="r")
        for i in range(0, len(where), self.batch):
            kelvin = crops[i : i + self.batch] * np.float32(self.scale) + np.float32(self.offset)
            last = self.times[where[i : i + self.batch, 2] + CROP[0] - 1]
            yield torch.from_numpy(kelvin), torch.from_numpy(hours(last))


class ByZarrPython:
    """Yields the same crops, read with zarr-python."""

    def __init__(self, store, where):
        import zarr

        self.data, self.where = zarr.open_group(store, mode="r")["data"], where

    def __getitem__(self, rows):
        ends = [[(o, o + n) for o, n in zip(row[2:], CROP)] for row in self.where[rows].tolist()]
        return np.stack([self.data[tuple(slice(*e) for e in one)] for one in ends])


def hours(times):
    """Returns hours of the day."""
    return ((times - times.astype("M8[D]")) / np.timedelta64(3600, "s")).astype("f4")


class Model(torch.nn.Module):
    """Predicts the change from one image to the next."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(CROP[0] + 1, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(32, 1, 3, padding=1)
        )

    def forward(self, images, hour):
        day = 2 * torch.pi * hour[:, None, None, None] / 24
        sun = torch.cat([torch.sin(day), torch.cos(day)], 1).expand(-1, -1, *images.shape[2:])
        return images[:, -1:] + self.layers(torch.cat([(images - 280) / 10, sun], 1))


def loss_of(model, kelvin, hour):
    return torch.nn.functional.mse_loss(model(kelvin[:, :-1], hour), kelvin[:, -1:])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("train", help="a mount")
    p.add_argument("valid", help="a mount")
    p.add_argument("--store", help="read crops from here, by zarr-python")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--loader-workers", type=int, default=2)
    a = p.parse_args()

    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    train, valid = Crops(a.train, a.batch, a.store), Crops(a.valid, a.batch, a.store)
    loader = lambda crops: DataLoader(crops, batch_size=None, num_workers=a.loader_workers)
    for epoch in range(a.epochs):
        train.epoch = epoch  # other crops in each: --jitter
        crops, began = 0, time.monotonic()
        for kelvin, hour in loader(train):
            loss = loss_of(model, kelvin, hour)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            crops += len(kelvin)
        took = time.monotonic() - began
        with torch.no_grad():
            squares = [(loss_of(model, kelvin, hour).item(), len(kelvin)) for kelvin, hour in loader(valid)]
            same = [(torch.nn.functional.mse_loss(k[:, -2], k[:, -1]).item(), len(k)) for k, _ in loader(valid)]
        mean = lambda parts: sum(x * n for x, n in parts) / sum(n for _, n in parts)
        print(f"epoch {epoch}: {crops} crops, validation {mean(squares):.4f} K² ({mean(same):.4f} if nothing changed), {crops / took:.0f} crops/s")


if __name__ == "__main__":
    main()
