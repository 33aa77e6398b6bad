"""What a training program saves of its data: a place in the order of a dataset.

A place is an epoch and how many of its samples all ranks and workers have trained on, together.
Dataset and order belong to it, since the same numbers mean other samples in another order. All
of that is a checkpoint of lsiofs, as a mount's file ``checkpoint`` has it: a small dict that can
be saved with a model, or with ``json.dump`` to a file for ``lsiofs mount --resume``.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from .errors import StateError


class Position(NamedTuple):
    """A place in the order: the samples of `epoch` that come before it."""

    epoch: int = 0
    samples: int = 0


def document(checkpoint: Mapping[str, Any], position: Position) -> dict[str, Any]:
    """The checkpoint of a place, of the dataset and in the order that a mount's `checkpoint` names."""
    if position.epoch < 0 or position.samples < 0:
        raise StateError(f"epoch {position.epoch}, samples {position.samples}: neither can be negative")
    order = dict(checkpoint["order"])
    taken = {"batch": order["batch"], "consumed": [position.samples]}
    # The last entry is how the mount deals. A mount that resumes from the state takes its batch from
    # there: dealt by another one, the samples of a DataLoader's batches would not be the next ones.
    last = checkpoint["done"][-1]
    deals = {**last, "consumed": [0] * len(last["consumed"])}
    return {"version": checkpoint["version"], "dataset": checkpoint["dataset"], "order": order, "epoch": position.epoch, "done": [taken, deals]}


def position(saved: Any, checkpoint: Mapping[str, Any]) -> Position:
    """The place that a saved document names, which has to be of the dataset and order of a mount's `checkpoint`.

    The short form ``{"epoch": 3, "samples": 20480}`` names neither, and fits all.
    """
    if not isinstance(saved, Mapping) or not _is_count(saved.get("epoch")):
        raise StateError(f"this is no state of a dataset: {saved!r:.200}")
    if saved.keys() <= {"epoch", "samples"}:
        if not _is_count(saved.get("samples", 0)):
            raise StateError(f"samples ({saved['samples']!r:.40}) has to be a number from 0 on")
        return Position(saved["epoch"], saved.get("samples", 0))
    missing = {"version", "dataset", "order", "done"} - saved.keys()
    if missing:
        raise StateError(f"this is no state of a dataset: it has no {', '.join(sorted(missing))}")
    if saved["version"] != checkpoint["version"]:
        raise StateError(f"the state is of version {saved['version']!r}, and this mount's are of {checkpoint['version']}")
    if saved["dataset"] != checkpoint["dataset"]:
        raise StateError(f"the state is of another dataset: of {saved['dataset']!s:.16}…, and this one is {checkpoint['dataset']:.16}…")
    differing = _differences(saved["order"], checkpoint["order"])
    if differing:
        raise StateError("the state is of another order: " + "; ".join(differing) + ": mount with the same, or with resume=STATE")
    return Position(saved["epoch"], _taken(saved["done"], checkpoint["order"]["batch"]))


def mounted_at(checkpoint: Mapping[str, Any]) -> Position:
    """The place that a mount's worker files begin at. The last entry is what they have delivered since."""
    return Position(checkpoint["epoch"], _taken(checkpoint["done"][:-1], checkpoint["order"]["batch"]))


def _taken(done: Any, batch: int) -> int:
    """How many samples a document's entries have taken, where they are the first ones of the epoch."""
    try:
        entries = [e for e in done if any(e["consumed"])]
        if not entries:
            return 0
        if len(entries) == 1:
            (samples,) = entries[0]["consumed"] if len(entries[0]["consumed"]) == 1 else (None,)
            if _is_count(samples) and entries[0]["batch"] == batch:
                return int(samples)
    except (TypeError, KeyError, AttributeError):
        raise StateError(f"this is no state of a dataset: what it has as done is {done!r:.200}") from None
    raise StateError("the state has what each worker has read, which is for worker files: mount with resume=STATE, and read worker(w)")


def _differences(saved: Any, mounted: Mapping[str, Any]) -> list[str]:
    if not isinstance(saved, Mapping):
        return [f"it has {saved!r:.40}"]
    names = list(mounted) + [n for n in saved if n not in mounted]
    return [f"{n} was {saved.get(n)!r}, and is {mounted.get(n)!r}" for n in names if saved.get(n) != mounted.get(n)]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
