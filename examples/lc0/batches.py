#!/usr/bin/env python3
"""Leela Chess Zero's training games as numpy batches.

    lsiofs mount GAMES MNT --format lc0 --lc0-check --on-corrupt skip
    ./batches.py MNT/worker-0.bin --batch 1024

GAMES holds training.*.gz or tars of them, of version 6. A stream is frames and
nothing else, so a batch is one read, and its fields are views of it: no frame is
parsed. A file of an epoch can be mapped as well:
numpy.memmap("MNT/epoch-0/worker-0-of-1.bin", FRAME, "r").
"""

import argparse

import lsiofs
import numpy as np

# V6TrainingData of lc0, src/trainingdata/trainingdata_v6.h.
FRAME = np.dtype([
    ("version", "<u4"), ("input_format", "<u4"), ("policy", "<f4", 1858), ("planes", "<u8", 104),
    ("castling", "u1", 4), ("side_to_move", "u1"), ("rule50", "u1"), ("invariance", "u1"), ("dummy", "u1"),
    ("root", "<f4", 2), ("root_best_d", "<f4", 2), ("root_best_m", "<f4", 2), ("plies_left", "<f4"),
    ("result_q", "<f4"), ("result_d", "<f4"), ("played", "<f4", 3), ("original", "<f4", 3),
    ("visits", "<u4"), ("played_index", "<u2"), ("best_index", "<u2"), ("policy_kld", "<f4"), ("reserved", "<u4"),
])
assert FRAME.itemsize == 8356


def tensors(batch):
    """What a network is trained on: planes of 8 × 8 bits, policy, result."""
    planes = np.unpackbits(batch["planes"][..., None].view(np.uint8), axis=-1, bitorder="little").reshape(len(batch), 104, 8, 8)
    return planes, np.maximum(batch["policy"], 0), batch["result_q"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stream")
    p.add_argument("--batch", type=int, default=1024)
    a = p.parse_args()
    for batch in lsiofs.Stream(a.stream).arrays(a.batch, FRAME):
        planes, policy, result = tensors(batch)
        print(len(batch), int(planes.sum()), "%.4f" % policy.sum(dtype="f8"), "%.4f" % result.sum(dtype="f8"))


if __name__ == "__main__":
    main()
