"""What a training program saves about its data: a position in the order of a dataset.

A position is an epoch and the number of its samples that all ranks and workers together have
trained on. It includes the dataset and the order, because in another order the same numbers
mean other samples. This is a checkpoint of lsiofs: a small dict that can be saved with a model,
or with ``json.dump`` to a file for ``lsiofs mount --resume``. The mount writes it, as the file
``epoch-E/from-M/checkpoint``; this module only reads it.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from .errors import StateError
from .identity import differences


class Position(NamedTuple):
    """A position in the order: the number of samples of `epoch` before it."""

    epoch: int = 0
    samples: int = 0


def position(saved: Any) -> Position:
    """The position in a saved document, regardless of its dataset and order."""
    if not isinstance(saved, Mapping) or not is_count(saved.get("epoch")):
        raise StateError(f"this is not a state of a dataset, as data.state_dict makes one: {saved!r:.200}")
    if is_short(saved):
        if not is_count(saved.get("samples", 0)):
            raise StateError(f"samples ({saved['samples']!r:.40}) must be a whole number, 0 or more")
        return Position(saved["epoch"], saved.get("samples", 0))
    missing = {"version", "dataset", "order", "done"} - saved.keys()
    if missing:
        raise StateError(f"this is not a state of a dataset: it has no {', '.join(sorted(missing))}")
    if not isinstance(saved["order"], Mapping) or not is_count(saved["order"].get("batch")):
        raise StateError(f"this is not a state of a dataset: its order is {saved['order']!r:.200}")
    return Position(saved["epoch"], _taken(saved["done"], saved["order"]["batch"]))


def compare(saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raises an error unless a saved document has the dataset and order of `own`, the mount's at that position."""
    if is_short(saved):
        return  # it has neither, so it fits any
    if saved["version"] != own["version"]:
        raise StateError(f"the state has version {saved['version']!r}, and this mount's states have version {own['version']}: use the release of lsiofs that wrote it")
    if saved.get("run") != own.get("run"):
        raise StateError(f"the state is of another run: it has {saved.get('run')!s:.16}, and this mount has {own.get('run')!s:.16}")
    # The snapshot of a growing dataset is that of its epoch.
    if saved["dataset"] != own["dataset"] and (own.get("run") is None or saved["epoch"] == own["epoch"]):
        raise StateError(f"the state is from another dataset: it has {saved['dataset']!s:.16}…, and this mount has {own['dataset']!s:.16}…: mount the dataset that it is of")
    differing = differences(saved["order"], own["order"])
    if differing:
        raise StateError("the state is from another order: " + "; ".join(differing) + ": mount with the state's settings, or with resume=STATE, which takes them from it")


def mounted_at(checkpoint: Mapping[str, Any]) -> Position:
    """The position at which a mount's worker files begin. The last entry is what they have delivered since."""
    return Position(checkpoint["epoch"], _taken(checkpoint["done"][:-1], checkpoint["order"]["batch"]))


def is_short(saved: Mapping[str, Any]) -> bool:
    """Whether a document has the short form, ``{"epoch": 3, "samples": 20480}``."""
    return saved.keys() <= {"epoch", "samples"}


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _taken(done: Any, batch: int) -> int:
    """The number of samples that a document's entries have taken, if they are the first ones of the epoch."""
    try:
        entries = [e for e in done if any(e["consumed"])]
        if not entries:
            return 0
        if len(entries) == 1:
            (samples,) = entries[0]["consumed"] if len(entries[0]["consumed"]) == 1 else (None,)
            if is_count(samples) and entries[0]["batch"] == batch:
                return int(samples)
    except (TypeError, KeyError, AttributeError):
        raise StateError(f"this is not a state of a dataset: its done is {done!r:.200}") from None
    raise StateError("the state counts what each worker has read of its worker file: mount with resume=STATE, and read worker(w)")
