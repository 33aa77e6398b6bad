#!/usr/bin/env python3
"""Train on one file of a mount; when stopped, resume exactly.

    train.py MNT SAVES          JOB_COMPLETION_INDEX selects the file: worker-0, worker-1, …

DATASET is JSONL here, lines like {"label": "cat"}, and the model is how often each
label has occurred. The point of this example is how it saves: after every
step, and so at the end and at SIGTERM too,

  SAVES/model-I-N.json    the model after the first N records of file I
  SAVES/checkpoint-I.json the mount's checkpoint, with N for what this pod has used

in this order, each completely or not at all: the second one counts, and N identifies
the first one that belongs to it. A new pod for the same index resumes there. From the
merged checkpoints of all pods (`lsiofs checkpoint merge`), any number of other pods
can resume.
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
pause = float(os.environ.get("STEP_SECONDS", 0))  # for trying this out: training takes time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # handled at the end of a step


def write(name, document):
    path = f"{saves}/{name}"
    with open(path + ".tmp", "w") as f:
        json.dump(document, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".tmp", path)


def save(model, used):
    write(f"model-{index}-{used}.json", model)
    # The mount counts what it has delivered, which is more because of readahead.
    checkpoint = data.checkpoint()
    consumed = [0] * len(checkpoint["done"][-1]["consumed"])
    consumed[index] = used
    checkpoint["done"][-1]["consumed"] = consumed
    write(f"checkpoint-{index}.json", checkpoint)
    print("saved", used, flush=True)  # what is trained on but not saved is repeated


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

last = used  # saved so far
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
            sys.exit(143)  # not done: the Job makes another pod for this index, unless it is deleted
