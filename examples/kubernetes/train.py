#!/usr/bin/env python3
"""Train on one file of a mount; be stopped and go on, exactly.

    train.py MNT SAVES          JOB_COMPLETION_INDEX says which file: worker-0, worker-1, …

DATASET is JSONL here, lines like {"label": "cat"}, and the model is how often each
label has come. What there is to learn from this file is how it saves: after every
step, and so at the end and at SIGTERM too,

  SAVES/model-I-N.json    the model after the first N records of file I
  SAVES/checkpoint-I.json the mount's checkpoint, with N for what this pod has used

in this order, each whole or not at all: the second one counts, and says which first
one belongs to it. A pod that comes again for its index goes on there. The
checkpoints of all pods, merged (`lsiofs checkpoint merge`), are where other pods,
of any number, go on.
"""

import collections
import json
import os
import signal
import sys

import lsiofs

mount, saves = sys.argv[1:3]
index = int(os.environ["JOB_COMPLETION_INDEX"])
step = int(os.environ.get("STEP_RECORDS", 10))
pause = float(os.environ.get("STEP_SECONDS", 0))  # to try this with: training takes time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # it waits for the end of a step


def write(name, document):
    path = f"{saves}/{name}"
    with open(path + ".tmp", "w") as f:
        json.dump(document, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".tmp", path)


def save(model, used):
    write(f"model-{index}-{used}.json", model)
    # The mount counts what it has delivered, and that is more: it was read ahead.
    checkpoint = data.checkpoint()
    consumed = [0] * len(checkpoint["done"][-1]["consumed"])
    consumed[index] = used
    checkpoint["done"][-1]["consumed"] = consumed
    write(f"checkpoint-{index}.json", checkpoint)
    print("saved", used, flush=True)  # what is trained on, and not saved, comes again


data = lsiofs.open(mount)
model, used = collections.Counter(), 0
try:
    with open(f"{saves}/checkpoint-{index}.json") as f:
        used = json.load(f)["done"][-1]["consumed"][index]
    with open(f"{saves}/model-{index}-{used}.json") as f:
        model.update(json.load(f))
except FileNotFoundError:
    save(model, used)
print("begins at", used, flush=True)

last = used  # of what is saved
stream, labels = data.worker(index, used), []
for sample in stream.samples():
    labels.append(sample["label"])
    used += 1
    if used % step == 0 or used == len(stream):
        model.update(labels)
        print("trained from", last, "on", *labels, flush=True)
        save(model, used)
        labels.clear()
        os.remove(f"{saves}/model-{index}-{last}.json")
        last = used
        if used < len(stream) and signal.sigtimedwait([signal.SIGTERM], pause):
            sys.exit(143)  # not done: the Job makes a pod for this index again, unless it is deleted
