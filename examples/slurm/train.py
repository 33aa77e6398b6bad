#!/usr/bin/env python3
"""Train on one file of a mount; when stopped, resume exactly.

    train.py merge SAVES [BEFORE]   before an attempt: the model of the previous attempt
    train.py MNT SAVES              SLURM_PROCID selects the file: worker-0, worker-1, …

DATASET is JSONL here, lines like {"label": "cat"}, and the model is how often each
label has occurred: the ranks' models are added up. The point of this example is how
it saves. After every step, and at SIGTERM, each rank writes

  SAVES/model-R-N.json    its model after the first N records of file R
  SAVES/checkpoint-R.json the mount's checkpoint, with N for what this rank has used

in this order, each completely or not at all: the second one counts, and N identifies
the first one that belongs to it. The mounts of the next attempt start at the merged
checkpoints of all ranks, and SAVES/model.json is the model before an attempt.
"""

import collections
import glob
import json
import os
import signal
import sys


def read(path):
    with open(path) as f:
        return json.load(f)


def write(path, document):
    with open(path + ".tmp", "w") as f:
        json.dump(document, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".tmp", path)


def learnt(saves, checkpoints):
    """The model of an attempt up to these checkpoints of its ranks."""
    model = collections.Counter(read(f"{saves}/model.json"))
    for path in glob.glob(f"{checkpoints}/checkpoint-*.json"):
        rank = int(path.rpartition("-")[2].partition(".")[0])
        used = read(path)["done"][-1]["consumed"][rank]
        model.update(read(f"{saves}/model-{rank}-{used}.json"))
    return model


def train(mount, saves, rank):
    import lsiofs

    step = int(os.environ.get("STEP_RECORDS", 10))
    pause = float(os.environ.get("STEP_SECONDS", 0))  # for trying this out: training takes time
    data = lsiofs.open(mount)
    checkpoint = data.checkpoint()  # where all files started, which does not change; we add what is used
    model, used, last, labels = collections.Counter(), 0, None, []
    me = f"attempt {os.path.basename(saves)} rank {rank}"

    def save():
        write(f"{saves}/model-{rank}-{used}.json", model)
        # The mount counts what it has delivered, which is more because of readahead.
        consumed = [0] * len(checkpoint["done"][-1]["consumed"])
        consumed[rank] = used
        checkpoint["done"][-1]["consumed"] = consumed
        write(f"{saves}/checkpoint-{rank}.json", checkpoint)
        print(me, "saved", used, flush=True)  # what is trained on but not saved is repeated
        if last is not None:
            os.remove(f"{saves}/model-{rank}-{last}.json")

    save()
    last = used
    stream = data.worker(rank)
    for sample in stream.samples():
        labels.append(sample["label"])
        used += 1
        if used % step == 0 or used == len(stream):
            model.update(labels)
            print(me, "trained from", last, "on", *labels, flush=True)
            save()
            last, labels = used, []
            if used < len(stream) and signal.sigtimedwait([signal.SIGTERM], pause):
                sys.exit(143)  # not done


if sys.argv[1] == "merge":
    saves, *before = sys.argv[2:]
    write(f"{saves}/model.json", learnt(before[0], f"{saves}/before") if before else {})
else:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # handled at the end of a step
    train(*sys.argv[1:], int(os.environ["SLURM_PROCID"]))
