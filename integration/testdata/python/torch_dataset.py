"""Reads stretches of an epoch as ranks of a DataLoader would: torch_dataset.py EXAMPLES MOUNT BATCH.

Two ranks of two workers take some steps, three ranks of one worker go on from
their state, and one rank without workers goes on by its own count. Prints the
records of each step in turn, a line a record.
"""

import itertools
import json
import pickle
import sys

sys.path.insert(0, sys.argv[1])
import lsiofs  # noqa: E402

assert "torch" not in sys.modules  # it takes seconds, and is for those who use it
assert "Dataset" not in vars(lsiofs) and not hasattr(lsiofs, "Data")
assert pickle.loads(pickle.dumps(lsiofs.Dataset("MNT", "tar", samples=3))).samples == 3

import torch  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

MOUNT, BATCH = sys.argv[2], int(sys.argv[3])


def target(record):
    return json.loads(bytes(record))["y"]


def steps(state, ranks, workers, number):
    datasets = [lsiofs.Dataset(MOUNT, "jsonl", target, rank, ranks) for rank in range(ranks)]
    for d in datasets:
        d.load_state_dict(state)
    loaders = [iter(DataLoader(d, batch_size=BATCH, num_workers=workers)) for d in datasets]
    for _ in itertools.count() if number is None else range(number):
        batches = [next(loader, None) for loader in loaders]
        if batches[0] is None:
            break
        for d, batch in zip(datasets, batches):
            print(*[int(y) for y in batch], sep="\n")
            d.samples += BATCH * ranks
    return datasets[0]


assert issubclass(lsiofs.Dataset, torch.utils.data.IterableDataset)
state = lsiofs.Dataset(MOUNT, "jsonl").state_dict()
state = steps(state, 2, 2, 7).state_dict()
state = steps(state, 3, 1, 5).state_dict()

# Without workers, the process that reads knows what it has taken.
alone = lsiofs.Dataset(MOUNT, "jsonl", target)
alone.load_state_dict(state)
for y in itertools.islice(alone, 10):
    print(y)
again = lsiofs.Dataset(MOUNT, "jsonl", target)
again.load_state_dict(alone.state_dict())
assert again.taken == 10
for y in again:
    print(y)
