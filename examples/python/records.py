#!/usr/bin/env python3
"""Write some records of a stream, at random, to stdout.

    ./records.py MNT/epoch-0/worker-0-of-1.jsonl 17 3 200000

A stream is a file: map it. The file of the same name that ends in .offsets says
where each record begins, and where the last one ends.
"""

import array
import mmap
import os
import sys


class Records:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        self.offsets = array.array("Q")
        with open(os.path.splitext(path)[0] + ".offsets", "rb") as f:
            self.offsets.frombytes(f.read())

    def __len__(self):
        return len(self.offsets) - 1

    def __getitem__(self, i):
        return self.data[self.offsets[i] : self.offsets[i + 1]]


if __name__ == "__main__":
    records = Records(sys.argv[1])
    for i in map(int, sys.argv[2:]):
        sys.stdout.buffer.write(records[i])
