#!/usr/bin/env python3
"""Print the samples of a tar stream, as the webdataset library would group them.

    ./samples.py MNT/worker-0.tar

Only the standard library is used. Members whose names are equal up to the first
dot of the base name are one sample; lsiofs hands samples out whole, and sees to
it that two samples with equal names do not stand side by side.
"""

import os
import sys
import tarfile


def samples(path):
    sample = {}
    # "r|": front to back, no seeking. tarfile reads 10 KiB at a time, each of which
    # would be a trip through FUSE: let the file read more.
    with open(path, "rb", buffering=1 << 20) as f, tarfile.open(fileobj=f, mode="r|") as stream:
        for member in stream:
            directory, base = os.path.split(member.name)
            if not member.isreg() or "." not in base or base.startswith(".") or directory.startswith("__"):
                continue  # what belongs to no sample: directories, LICENSE, __meta__/…
            name, _, extension = base.partition(".")
            key = os.path.join(directory, name)
            if sample and sample["key"] != key:
                yield sample
                sample = {}
            sample["key"] = key
            sample[extension] = stream.extractfile(member).read()
    if sample:
        yield sample


if __name__ == "__main__":
    for s in samples(sys.argv[1]):
        print(s.pop("key"), *(f"{extension}:{len(data)}" for extension, data in s.items()))
