#!/usr/bin/env python3
"""Train a classifier on folders of images by class, with the labels of torchvision's ImageFolder.

    ./images.py make IMAGES                        # IMAGES/circle/*.ppm, IMAGES/cross/*.ppm, IMAGES/stripes/*.ppm, tiny
    ./images.py train IMAGES --epochs 3            # mounts IMAGES by itself

A sample of a mount with format="files" is a dict: its files by extension, and "__key__", its
path. The label is the path's first directory. Classes are numbered by sorted name, as in
ImageFolder, so a model that was trained with either can be used with the other.
"""

import argparse
import pathlib
import random

import lsiofs
import torch
from torch.utils.data import DataLoader

SIDE = 16


def make(root, images=120, seed=0):
    """Makes images of three classes, each a PPM file: a header, and SIDE × SIDE × 3 bytes."""
    r = random.Random(seed)
    shapes = {
        "stripes": lambda x, y, at: (x + at) % 4 < 2,
        "circle": lambda x, y, at: (x - 8) ** 2 + (y - 8) ** 2 < 20 + at,
        "cross": lambda x, y, at: abs(x - 6 - at % 4) < 2 or abs(y - 6 - at % 3) < 2,
    }
    for name, inside in shapes.items():
        directory = pathlib.Path(root, name)
        directory.mkdir(parents=True, exist_ok=True)
        for i in range(images):
            at = r.randrange(12)
            pixels = [min(255, 180 * inside(x, y, at) + r.randrange(60)) for y in range(SIDE) for x in range(SIDE) for _ in range(3)]
            (directory / f"{i:04}.ppm").write_bytes(b"P6\n%d %d\n255\n" % (SIDE, SIDE) + bytes(pixels))


class Decode:
    """Returns an image and its label. It is an object, so that it can be pickled for spawned workers."""

    def __init__(self, classes):
        self.classes = classes

    def __call__(self, sample):
        # A JPEG decoder also accepts the bytes: PIL.Image.open(io.BytesIO(sample["jpg"])).
        pixels = bytearray(sample["ppm"][-3 * SIDE * SIDE :])
        image = torch.frombuffer(pixels, dtype=torch.uint8).reshape(SIDE, SIDE, 3).permute(2, 0, 1)
        return image.float() / 255, self.classes(sample)


def train(root, epochs, batch, workers):
    torch.manual_seed(0)
    with lsiofs.mount(root, format="files", batch=batch, seed=1) as data:
        classes = data.classes()
        print("classes:", ", ".join(f"{number} {name}" for number, name in enumerate(classes)))
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, 32), torch.nn.ReLU(), torch.nn.Linear(32, len(classes)))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        dataset = data.torch(Decode(classes))
        loader = DataLoader(dataset, batch_size=batch, num_workers=workers)
        for epoch in range(epochs):
            dataset.set_epoch(epoch)
            right = seen = 0
            for images, labels in loader:
                scores = model(images)
                loss = torch.nn.functional.cross_entropy(scores, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += int((scores.argmax(1) == labels).sum())
                seen += len(labels)
            print(f"epoch {epoch}: {right} of {seen} right")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("verb", choices=["make", "train"])
    p.add_argument("images", help="the directory of the classes' directories")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--loader-workers", type=int, default=2)
    a = p.parse_args()
    if a.verb == "make":
        make(a.images)
    else:
        train(a.images, a.epochs, a.batch, a.loader_workers)


if __name__ == "__main__":
    main()
