"""Labels of samples that are in one directory per class, as ImageNet and torchvision's ImageFolder have them.

    data = lsiofs.mount("/data/images", format="files")   # /data/images/cat/1.jpg, /data/images/dog/1.jpg …
    classes = data.classes()                              # Classes(['cat', 'dog'])
    for sample in data.epoch(0).samples():
        label = classes(sample)                           # 0 for cat, 1 for dog

The label is in the sample's path alone, which is its ``"__key__"``. Numbers are those of
ImageFolder: the names of the classes are sorted, and counted from 0.
"""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping, Sequence, overload

from .errors import OutOfRange


class Classes(Sequence[str]):
    """The names of classes, sorted. Called with a sample, it gives the number of the sample's class."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(set(names))
        self.numbers = {name: number for number, name in enumerate(self.names)}

    def __call__(self, sample: Mapping[str, Any]) -> int:
        name = directory(sample)
        try:
            return self.numbers[name]
        except KeyError:
            raise OutOfRange(f"sample {_path(sample)!r} is in directory {name!r}, which is not one of the {len(self)} classes") from None

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[str]: ...
    def __getitem__(self, number: int | slice) -> str | Sequence[str]:
        return self.names[number]

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Classes({self.names!r})"


def directory(sample: Mapping[str, Any]) -> str:
    """The first directory of a sample's path: its class. A sample without a directory has ''."""
    path = _path(sample).removeprefix("./")
    return path.partition("/")[0] if "/" in path else ""


def listed(info: Mapping[str, Any]) -> list[str] | None:
    """The first directories of a dataset of single files, of what ``dataset.json`` lists; None where it lists none."""
    if "directories" not in info:
        return None
    paths = [os.fsdecode(bytes.fromhex(d["path_hex"])) if "path_hex" in d else d["path"] for d in info["directories"]]
    return sorted({path.partition("/")[0] for path in paths if path != "."})


def directories(root: str) -> list[str]:
    """The directories in `root`, as ImageFolder takes them for classes. lsiofs passes over those that begin with a dot."""
    with os.scandir(root) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))


def _path(sample: Mapping[str, Any]) -> str:
    key = sample["__key__"]
    return os.fsdecode(key) if isinstance(key, bytes) else str(key)
