#!/usr/bin/env python3
"""Train from a bucket, be killed, and resume elsewhere.

    ./train.py make DIR                        # a small dataset to try it with: tar shards of tiny images
    aws s3 cp --recursive DIR s3://BUCKET/train
    ./train.py s3://BUCKET/train               # Ctrl-C, kill -9, a lost machine …
    ./train.py s3://BUCKET/train               # … and the same command resumes

DATASET is anything that `lsiofs mount` accepts: a bucket, https://HOST/{000..146}.tar, a directory.
The saved position belongs to the data, not to its location, so a run can also resume with a copy,
on another machine, and with another number of DataLoader workers:

    ./train.py /data/copy-of-train --loader-workers 5

Model, optimizer and position are saved in one file, which is renamed when it is complete. So a
program that is killed resumes from a consistent save: it trains on later samples again, with the
saved model, and no sample is lost or counts twice.
"""

import argparse
import io
import os
import pathlib
import random
import tarfile
import time

import lsiofs
import torch
from torch.utils.data import DataLoader

SIDE = 8


def make(root, shards=6, samples=64, seed=0):
    """Shards of samples NAME.gray and NAME.cls: SIDE × SIDE bytes, with a bright row or column, and 0 or 1 for which."""
    r = random.Random(seed)
    pathlib.Path(root).mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        with tarfile.open(f"{root}/{shard:03}.tar", "w") as tar:
            for n in range(shard * samples, (shard + 1) * samples):
                label, at = r.randrange(2), r.randrange(SIDE)
                image = bytes(r.randrange(80) + 150 * ((x if label else y) == at) for y in range(SIDE) for x in range(SIDE))
                for name, data in (f"{n:06}.gray", image), (f"{n:06}.cls", str(label).encode()):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def decode(sample):
    """Runs in the loader's workers. A JPEG decoder also accepts the bytes: PIL.Image.open(io.BytesIO(sample["jpg"]))."""
    image = torch.frombuffer(bytearray(sample["gray"]), dtype=torch.uint8).float() / 255
    return image.view(SIDE, SIDE), int(sample["cls"]), sample["__key__"]


def train(a):
    torch.manual_seed(0)
    saved = torch.load(a.save) if os.path.exists(a.save) else None
    # The state contains the order of the run: its shuffle and seed.
    order = {"resume": saved["data"]} if saved else {"seed": 1}
    with lsiofs.mount(a.dataset, a.mountpoint, batch=a.batch, **order) as data:
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIDE * SIDE, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        if saved:
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        epoch, samples = data.position
        print(f"epoch {epoch}, sample {samples}: begins, on {a.dataset}", flush=True)

        def save():
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": data.state_dict(samples, epoch)}
            torch.save(state, a.save + ".tmp")
            os.replace(a.save + ".tmp", a.save)
            print(f"epoch {epoch}, sample {samples}: saved", flush=True)

        dataset = data.torch(decode)
        loader = DataLoader(dataset, batch_size=a.batch, num_workers=a.loader_workers)
        while epoch < a.epochs:
            dataset.set_epoch(epoch, samples)
            right = seen = 0
            for step, (images, labels, keys) in enumerate(loader, 1):
                if a.log:
                    with open(a.log, "a") as f:
                        print(epoch, samples, *keys, file=f)
                scores = model(images)
                loss = torch.nn.functional.cross_entropy(scores, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(a.pause)
                samples += len(labels)
                right += int((scores.argmax(1) == labels).sum())
                seen += len(labels)
                if step % a.save_steps == 0:
                    save()
            print(f"epoch {epoch}: {right} of {seen} right", flush=True)
            epoch, samples = epoch + 1, 0
            save()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dataset", help="a bucket, the URL of shards, or a directory; or the word make")
    p.add_argument("directory", nargs="?", help="of make: where the shards go")
    p.add_argument("--save", default="run.pt", help="where model and place are saved, and found again")
    p.add_argument("--save-steps", type=int, default=5)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch", type=int, default=8, help="the same for the whole of a run")
    p.add_argument("--loader-workers", type=int, default=2)
    p.add_argument("--mountpoint", help="an empty directory; without it, a temporary one")
    p.add_argument("--log", help="append epoch, place and names of every batch to this file")
    p.add_argument("--pause", type=float, default=0, help="seconds that a step takes longer: to try this with")
    a = p.parse_args()
    if a.dataset == "make" and a.directory:
        make(a.directory)
    else:
        train(a)


if __name__ == "__main__":
    main()
