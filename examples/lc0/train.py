#!/usr/bin/env python3
"""Train a small network on games of Leela Chess Zero, with numpy or torch, and resume exactly.

    lsiofs mount GAMES MNT --format lc0 --shuffle-size 65536 --batch 256 --tail drop --lc0-check --on-corrupt skip
    ./train.py MNT --batch 256 --epochs 2               # stop it at any time, and start it again
    ./train.py MNT --batch 256 --epochs 2 --torch

On games that arrive while it trains (each epoch uses the newest ones; it runs until you stop it):

    lsiofs mount --grow GAMES MNT --format lc0 --shuffle-size 65536 --window 500000units --min-new 40000units --batch 256 --tail drop --lc0-check --on-corrupt skip
    ./train.py MNT --batch 256

The model's file records how many epochs, and how many samples of the next one, it has been
trained on. That is all that is needed: MNT/epoch-E/from-M has the rest of epoch E, so no
sample is lost or repeated. Nothing is written to the mount.

If an epoch can't start yet, the program waits for it.
"""

import argparse
import itertools
import os
import time

import numpy as np

from batches import batches, tensors, torch_tensors

PLANES, HIDDEN, MOVES, RESULTS, RATE = 112 * 64, 32, 1858, 3, 0.05


def weights():
    """The initial weights of both networks: a hidden layer, a head for moves, and one for win, draw and loss."""
    random = np.random.default_rng(1)
    return {name: random.normal(0, 0.02, shape).astype("f4") for name, shape in
            [("planes", (PLANES, HIDDEN)), ("moves", (HIDDEN, MOVES)), ("results", (HIDDEN, RESULTS))]}


class NumPy:
    def __init__(self):
        self.weights = weights()

    def step(self, frames):
        """One step of gradient descent; returns the loss before it."""
        planes, probabilities, values = tensors(frames)
        w, n = self.weights, len(frames)
        x = planes.reshape(n, PLANES)
        hidden = np.tanh(x @ w["planes"])
        q, d = values[:, 0, 0], values[:, 0, 1]
        results = np.stack([(1 - d + q) / 2, d, (1 - d - q) / 2], 1)
        moves = np.maximum(probabilities, 0)
        moves /= np.maximum(moves.sum(1, keepdims=True), 1e-6)
        loss, gradient, heads = 0.0, np.zeros_like(hidden), {}
        for name, target, legal in [("moves", moves, probabilities >= 0), ("results", results, True)]:
            logits = np.where(legal, hidden @ w[name], np.float32(-1e9))
            p = np.exp(logits - logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            loss -= float((target * np.log(np.maximum(p, 1e-9))).sum() / n)
            error = (p - target) / n
            heads[name] = hidden.T @ error
            gradient += error @ w[name].T
        w["planes"] -= RATE * (x.T @ (gradient * (1 - hidden * hidden)))
        for name, change in heads.items():
            w[name] -= RATE * change
        return loss


class Torch:
    def __init__(self):
        import torch

        self.torch = torch
        self.weights = {name: torch.from_numpy(w).requires_grad_() for name, w in weights().items()}
        self.optimizer = torch.optim.SGD(self.weights.values(), lr=RATE)

    def step(self, frames):
        torch, w = self.torch, self.weights
        planes, probabilities, values = torch_tensors(frames)
        hidden = torch.tanh(planes.view(-1, PLANES) @ w["planes"])
        q, d = values[:, 0, 0], values[:, 0, 1]
        results = torch.stack([(1 - d + q) / 2, d, (1 - d - q) / 2], 1)
        moves = probabilities.clamp(min=0)
        moves = moves / moves.sum(1, keepdim=True).clamp(min=1e-6)
        legal = (hidden @ w["moves"]).masked_fill(probabilities < 0, -1e9)
        loss = torch.nn.functional.cross_entropy(legal, moves) + torch.nn.functional.cross_entropy(hidden @ w["results"], results)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss)


def load(path, model):
    """Returns the epoch, and the number of its samples that the model has been trained on."""
    if not os.path.exists(path):
        return 0, 0
    with np.load(path) as saved:
        for name, w in model.weights.items():
            w = w if isinstance(w, np.ndarray) else w.detach().numpy()  # shares its memory
            w[...] = saved[name]
        return int(saved["epoch"]), int(saved["samples"])


def save(path, model, epoch, samples):
    """Saves the weights and the position atomically."""
    arrays = {name: w if isinstance(w, np.ndarray) else w.detach().numpy() for name, w in model.weights.items()}
    with open(path + ".tmp", "wb") as f:
        np.savez(f, epoch=epoch, samples=samples, **arrays)
    os.replace(path + ".tmp", path)


def begin(path):
    """Waits until the epoch of a file can start, and starts it by opening the file."""
    while True:
        try:
            return open(path, "rb").close()
        except FileNotFoundError:
            time.sleep(5)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("mount")
    p.add_argument("--torch", action="store_true")
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--epochs", type=int, help="stop before this epoch")
    p.add_argument("--steps", type=int, help="stop after so many steps")
    p.add_argument("--save", default="model.npz")
    p.add_argument("--save-every", type=int, default=100, help="steps")
    p.add_argument("--log", help="append each step's epoch, and its frames' visits, to this file")
    a = p.parse_args()

    model = Torch() if a.torch else NumPy()
    epoch, samples = load(a.save, model)
    steps = itertools.count(1)
    for epoch in itertools.count(epoch):
        if epoch == a.epochs:
            break
        path = f"{a.mount}/epoch-{epoch}/from-{samples}/worker-0-of-1.bin"
        begin(path)
        losses = []
        for frames in batches(path, a.batch):
            losses.append(model.step(frames))
            samples += len(frames)
            if a.log:
                with open(a.log, "a") as log:
                    print(epoch, *frames["visits"].tolist(), file=log)
            step = next(steps)
            if step % a.save_every == 0 or step == a.steps:
                save(a.save, model, epoch, samples)
            if step == a.steps:
                return
        if losses:
            print(f"epoch {epoch}: {len(losses)} steps, loss {np.mean(losses):.4f}", flush=True)
        samples = 0
        save(a.save, model, epoch + 1, samples)


if __name__ == "__main__":
    main()
