#!/usr/bin/env python3
"""Write records of a stream, given by number, to stdout.

    ./records.py MNT/epoch-0/worker-0-of-1.jsonl 17 3 200000

A stream is a file. The file with the same name and the ending .offsets has the offset
of each record, and the end of the last one. So each record is one read.
"""

import sys

import lsiofs

if __name__ == "__main__":
    records = lsiofs.Stream(sys.argv[1])
    for number in map(int, sys.argv[2:]):
        sys.stdout.buffer.write(records[number])
