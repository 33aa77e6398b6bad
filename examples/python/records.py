#!/usr/bin/env python3
"""Write some records of a stream, at random, to stdout.

    ./records.py MNT/epoch-0/worker-0-of-1.jsonl 17 3 200000

A stream is a file. The file of the same name that ends in .offsets says where each
record begins, and where the last one ends: so any of them is one read.
"""

import sys

import lsiofs

if __name__ == "__main__":
    records = lsiofs.Stream(sys.argv[1])
    for number in map(int, sys.argv[2:]):
        sys.stdout.buffer.write(records[number])
