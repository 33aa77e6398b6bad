#!/usr/bin/env python3
"""Train a small character model on overlapping sequences of token files, in numpy.

    ./train.py prepare TEXT DATA                  # DATA/*.bin: uint16 tokens, as nanoGPT has them; DATA/vocabulary.json
    lsiofs mount 'DATA/*.bin' MNT --format fixed --record-bytes 130 --stride-bytes 128
    ./train.py train MNT DATA --epochs 3

A record is 65 tokens of 2 bytes: 64 to predict from, and each one's next. It begins 64 tokens after the previous one,
so every token is predicted once per epoch. llm.c's files have a header: mount them with --header-bytes 1024.
"""

import argparse
import json
import pathlib

import lsiofs
import numpy as np

LENGTH, CONTEXT, WIDTH, HIDDEN = 64, 4, 16, 64


def prepare(text, data, files=4):
    text = pathlib.Path(text).read_text()
    vocabulary = sorted(set(text))
    tokens = np.array([vocabulary.index(c) for c in text], "<u2")
    data = pathlib.Path(data)
    data.mkdir(parents=True, exist_ok=True)
    for i, part in enumerate(np.array_split(tokens, files)):
        # The sequences of a file, and the token after the last one.
        part[: len(part) // LENGTH * LENGTH + 1].tofile(data / f"tokens-{i}.bin")
    (data / "vocabulary.json").write_text(json.dumps(vocabulary))


class Model:
    """The next character from the CONTEXT before it: an embedding, a hidden layer, a softmax."""

    def __init__(self, characters, seed=0):
        r = np.random.default_rng(seed)
        shapes = [(characters, WIDTH), (CONTEXT * WIDTH, HIDDEN), (HIDDEN,), (HIDDEN, characters), (characters,)]
        self.weights = [r.normal(0, 0.1, s).astype("f4") for s in shapes]
        self.moments = [(np.zeros(s, "f4"), np.zeros(s, "f4")) for s in shapes]
        self.steps = 0

    def step(self, x, y, rate):
        """One step of Adam on contexts x and their next characters y; returns the mean loss before it."""
        embedding, w1, b1, w2, b2 = self.weights
        e = embedding[x].reshape(len(x), -1)
        h = np.tanh(e @ w1 + b1)
        logits = h @ w2 + b2
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        at = np.arange(len(y)), y
        loss = -np.log(p[at]).mean()
        p[at] -= 1
        p /= len(y)
        dh = (p @ w2.T) * (1 - h * h)
        de = np.zeros_like(embedding)
        np.add.at(de, x, (dh @ w1.T).reshape(*x.shape, WIDTH))
        self.steps += 1
        for w, (m, v), g in zip(self.weights, self.moments, [de, e.T @ dh, dh.sum(0), h.T @ p, p.sum(0)]):
            m += 0.1 * (g - m)
            v += 0.01 * (g * g - v)
            w -= rate * (m / (1 - 0.9**self.steps)) / (np.sqrt(v / (1 - 0.99**self.steps)) + 1e-8)
        return loss


def train(mount, data, epochs, batch):
    vocabulary = json.loads((pathlib.Path(data) / "vocabulary.json").read_text())
    model = Model(len(vocabulary))
    streams = lsiofs.open(mount)
    for epoch in range(epochs):
        losses = []
        for rows in streams.epoch(epoch).arrays(batch, ("<u2", (LENGTH + 1,))):
            windows = np.lib.stride_tricks.sliding_window_view(rows, CONTEXT + 1, axis=1).reshape(-1, CONTEXT + 1)
            losses.append(model.step(windows[:, :-1].astype(int), windows[:, -1].astype(int), 0.01))
        print(f"epoch {epoch}: {len(losses)} steps, loss {np.mean(losses):.3f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("verb", choices=["prepare", "train"])
    p.add_argument("source", help="a text, or the mount")
    p.add_argument("data", help="the directory of the token files")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch", type=int, default=16)
    a = p.parse_args()
    if a.verb == "prepare":
        prepare(a.source, a.data)
    else:
        train(a.source, a.data, a.epochs, a.batch)


if __name__ == "__main__":
    main()
