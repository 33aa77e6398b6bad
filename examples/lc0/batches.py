#!/usr/bin/env python3
"""Leela Chess Zero's training games as batches of tensors, of numpy or torch.

    lsiofs mount GAMES MNT --format lc0 --lc0-check --on-corrupt skip
    ./batches.py MNT/worker-0.bin --batch 1024

GAMES contains training.*.gz or tars of them, of version 6 or 7. A stream consists only of
frames, so a batch is one read, and its fields are views of it: no frame is parsed. The tensors
are those of lczero-training's loader. Planes stay packed, one bit per square, as long as
possible: a frame has 8 KB, its tensors 36 KB.

`lsiofs mount … --as tensors` makes the same tensors in the mount, for programs that can't do
this, also for frames of versions 3 to 5, and for input formats other than 1.
"""

import argparse

import lsiofs
import numpy as np

# V6TrainingData and V7TrainingData of lc0, src/trainingdata/trainingdata_v6.h and _v7.h.
V6 = [
    ("version", "<u4"), ("input_format", "<u4"), ("probabilities", "<f4", 1858), ("planes", "u1", (104, 8)),
    ("castling", "u1", 4), ("side_to_move", "u1"), ("rule50", "u1"), ("invariance_info", "u1"), ("dummy", "u1"),
    ("root_q", "<f4"), ("best_q", "<f4"), ("root_d", "<f4"), ("best_d", "<f4"), ("root_m", "<f4"), ("best_m", "<f4"),
    ("plies_left", "<f4"), ("result_q", "<f4"), ("result_d", "<f4"), ("played_q", "<f4"), ("played_d", "<f4"), ("played_m", "<f4"),
    ("orig_q", "<f4"), ("orig_d", "<f4"), ("orig_m", "<f4"), ("visits", "<u4"), ("played_idx", "<u2"), ("best_idx", "<u2"),
    ("policy_kld", "<f4"), ("q_st", "<f4"),
]
V7 = V6 + [("d_st", "<f4"), ("opp_played_idx", "<u2"), ("next_played_idx", "<u2"), ("reserved", "<f4", 8)]
FRAMES = {6: np.dtype(V6), 7: np.dtype(V7)}
assert FRAMES[6].itemsize == 8356 and FRAMES[7].itemsize == 8396

# q, d and m of each row of `values`.
VALUES = [
    ("result_q", "result_d", "plies_left"), ("best_q", "best_d", "best_m"), ("played_q", "played_d", "played_m"),
    ("orig_q", "orig_d", "orig_m"), ("root_q", "root_d", "root_m"), ("q_st", "d_st", None),
]
CLASSICAL = 1  # the input format whose last planes are numbers


def frame_type(path):
    """The dtype of a stream's frames, from its first one. All frames of a mount have the same version."""
    with open(path, "rb", 0) as f:
        version = int.from_bytes(f.read(4), "little") or 6  # an empty stream has none
    if version not in FRAMES:
        raise ValueError(f"{path}: frames of version {version}: mount with --as tensors")
    return FRAMES[version]


def batches(path, size):
    """Yields arrays of that many frames; the last one may have fewer."""
    return lsiofs.Stream(path).arrays(size, frame_type(path))


def tensors(frames):
    """planes (n, 112, 8, 8), probabilities (n, 1858; -1: no legal move) and values (n, 6, 3), all float32."""
    check(frames)
    planes = np.zeros((len(frames), 112, 64), "f4")
    planes[:, :104] = np.unpackbits(frames["planes"], axis=2)
    planes[:, 104:108] = frames["castling"][:, :, None]
    planes[:, 108] = frames["side_to_move"][:, None]
    planes[:, 109] = frames["rule50"][:, None] / np.float32(99)
    planes[:, 111] = 1
    return planes.reshape(-1, 112, 8, 8), frames["probabilities"], values(frames)


def values(frames):
    v = np.zeros((len(frames), len(VALUES), 3), "f4")
    for i, names in enumerate(VALUES):
        for k, name in enumerate(names):
            if name is None:
                v[:, i, k] = np.nan  # not recorded in frames
            elif name in frames.dtype.names:
                v[:, i, k] = frames[name]
    return v


def torch_tensors(frames, device="cpu"):
    """`tensors` for torch, on a device: frames are copied to it packed, and unpacked there."""
    import torch

    check(frames)
    size = frames.dtype.itemsize
    b = torch.from_numpy(frames.view("u1").reshape(-1, size).copy()).to(device)  # pin_memory() before, for a GPU
    bits = torch.arange(7, -1, -1, dtype=torch.uint8, device=b.device)
    at = frames.dtype.fields["planes"][1]
    planes = torch.zeros(len(b), 112, 64, device=b.device)
    planes[:, :104] = (b[:, at : at + 832, None] >> bits & 1).view(-1, 104, 64)
    at += 832
    planes[:, 104:109] = b[:, at : at + 5, None]
    planes[:, 109] = b[:, at + 5, None] / 99.0
    planes[:, 111] = 1
    probabilities = b[:, 8:7440].contiguous().view(torch.float32)
    return planes.view(-1, 112, 8, 8), probabilities, torch.from_numpy(values(frames)).to(device)


def check(frames):
    others = frames["input_format"] != CLASSICAL
    if others.any():
        raise ValueError(f"a frame of input format {frames['input_format'][others][0]}: mount with --as tensors, which knows them all")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stream")
    p.add_argument("--batch", type=int, default=1024)
    a = p.parse_args()
    for frames in batches(a.stream, a.batch):
        planes, probabilities, v = tensors(frames)
        print(len(frames), int(planes[:, :104].sum()), "%.4f" % np.maximum(probabilities, 0).sum(dtype="f8"), "%.4f" % v[:, 0, 0].sum(dtype="f8"))


if __name__ == "__main__":
    main()
