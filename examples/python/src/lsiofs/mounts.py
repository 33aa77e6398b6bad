"""A mount of a dataset: made by this program, or an existing one."""

from __future__ import annotations

import builtins
import errno
import json
import operator
import os
import tempfile
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Optional, Union

from . import labels, state
from .errors import ArgumentError, EpochNotReady, Error, MountError, OutOfRange, ReadError, StateError, explained
from .identity import Identity
from .server import Server, Value
from .state import Position
from .stream import Stream

if TYPE_CHECKING:
    import numpy

    from .torch_dataset import TorchDataset

Path = Union[str, "os.PathLike[str]"]

_POLL_SECONDS = 1.0  # between checks whether an epoch can start
_MOST_WORKERS = 65536  # of a mount


def mount(
    dataset: Optional[Path] = None,
    mountpoint: Optional[Path] = None,
    *,
    resume: Union[None, Path, Mapping[str, Any]] = None,
    command: Optional[str] = None,
    **flags: Value,
) -> Mount:
    """Mounts a dataset, and returns the mount when it can be read.

    `flags` are those of ``lsiofs mount``, with ``_`` for ``-``: ``workers=4, batch=64, split="0..0.9",
    seed=1, memory="4GiB"``. The command checks them; errors raise `MountError` with its message.
    A mixture has no `dataset`, but ``mix=["web=70:/data/web", "code=30:/data/code"]``.
    `mountpoint` is an empty directory; without one it is a temporary one, removed at the end.
    `resume` is a state from `Mount.state_dict`, or a file that contains one: the mount then has its
    order and position. `command` is the program to start, instead of the one that `lsiofs.command` finds.

    The mount ends with ``with``, with `Mount.close`, when nothing refers to it any more, and when this
    process ends for any reason. The first mount of a dataset indexes it, which may take a while.
    """
    with _as_file(resume) as file:
        if file is not None:
            flags["resume"] = file
        server = Server(_text(dataset), _text(mountpoint), flags, command)
    return Mount(server.mountpoint, server)


def open(mountpoint: Path) -> Mount:  # noqa: A001 - lsiofs.open
    """An existing mount, made by ``lsiofs mount`` or another program. Closing it does not unmount it."""
    return Mount(os.path.abspath(mountpoint))


class Mount:
    """A mounted dataset.

    It can be sent to other processes, where it refers to the same mount and does not own it.
    Attributes: `path`, the mount point; `info`, the contents of the mount's ``dataset.json``. Every read
    first checks that the mount is still the same, because another one may have replaced it.
    """

    def __init__(self, path: str, server: Optional[Server] = None) -> None:
        self.path = path
        self._server = server
        self._identity = Identity(path, server is not None)
        self._named_epoch: Optional[int] = None  # by a torch dataset's set_epoch
        # For its torch datasets, a tensor shared by their workers: a loop counts beyond the end of an
        # epoch by less than this. 0 until a loader has requested a sample.
        self._beyond: Any = None
        self._position: Union[Position, Error]
        try:
            self._position = state.mounted_at(self.checkpoint())
        except StateError as e:
            self._position = e  # checked when it is used

    @property
    def info(self) -> dict[str, Any]:
        return self._identity.info

    def __repr__(self) -> str:
        return f"lsiofs.Mount({self.path!r}, {self.info['records']} records of {self.info['dataset']})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_server": None, "_beyond": None}

    def __enter__(self) -> Mount:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmounts what `mount` has mounted, and waits until the server has ended. It may be called again.

        After that, nothing can be read through this object. In a fork of the program that mounted, it does nothing.
        """
        if self._server is None or self._server.close():
            self._identity.closed = True

    def _check(self) -> int:
        """Raises an error unless the mount is still the same, or one with the same content. Returns its device."""
        return self._identity.check()[0]

    # What is read.

    @property
    def format(self) -> str:
        """The format of the dataset, which defines its records: ``tar``, ``jsonl`` …"""
        return str(self.info["format"]["name"])

    @property
    def _streams(self) -> str:
        """The format of its streams: that of the dataset, or npy if they consist of rows made from records."""
        return "npy" if "rows" in self.info else self.format

    @property
    def extension(self) -> str:
        """The extension of its streams, with the dot."""
        return str(self.info["extension"])

    def __len__(self) -> int:
        """The number of records in an epoch, before they are divided among workers."""
        return int(self.info["records"])

    def epoch(self, epoch: int = 0, start: int = 0) -> Epoch:
        """A whole epoch, or the rest after its first `start` records. Reading it changes nothing in the mount."""
        return Epoch(self, epoch, start)

    def worker(self, worker: int = 0, first: int = 0) -> Stream:
        """The file ``worker-N``: the records that this worker has still to read after the mount's checkpoint.

        The mount's checkpoint counts what is read from it as delivered, including a few windows of reading ahead.
        """
        try:
            return Stream(f"{self.path}/worker-{worker}{self.extension}", first, self._streams, owner=self)
        except ReadError as e:
            if e.errno != errno.ENOENT:
                raise
            workers = self.info["deal"]["workers"]
            raise OutOfRange(f"{self.path} has {workers} worker files, from 0 on, and no worker {worker}: mount with more workers, or use epoch(e).stream(w, workers)") from None

    def classes(self, names: Optional[Iterable[str]] = None) -> labels.Classes:
        """The classes of samples that are in one directory per class: `names`, else the directories of the dataset.

        These are all directories of the dataset, even if a split leaves a class without records.
        """
        if names is not None:
            return labels.Classes(names)
        listed = labels.listed(self.info)
        if listed is not None:
            return labels.Classes(listed)
        root = str(self.info["root"])
        try:
            return labels.Classes(labels.directories(root))
        except OSError as e:
            raise Error(f"the classes of {root} can't be listed here ({e.strerror}): name them, as in classes(['cat', 'dog'])") from e

    def torch(
        self,
        decode: Optional[Callable[[Any], Any]] = None,
        *,
        rank: Optional[int] = None,
        ranks: Optional[int] = None,
        epoch: Optional[int] = None,
        samples: Optional[int] = None,
        raw: bool = False,
        any_batch: bool = False,
    ) -> TorchDataset:
        """An IterableDataset for torch's DataLoader: see `lsiofs.torch_dataset.TorchDataset`."""
        from .torch_dataset import TorchDataset

        self._check()
        if epoch is None:
            at = self.position
            epoch, samples = at.epoch, at.samples if samples is None else samples
        return TorchDataset(self, decode, rank, ranks, epoch, samples or 0, raw, any_batch)

    # Where it stands.

    @property
    def position(self) -> Position:
        """Where training begins: the state passed to `load_state_dict`, else the position that the mount resumed from."""
        if isinstance(self._position, Error):
            raise self._position
        return self._position

    def state_dict(self, samples: Optional[int] = None, epoch: Optional[int] = None) -> dict[str, Any]:
        """The state to save with a model: this dataset and order, the epoch, and the number of its samples trained on.

        `samples` counts from the start of the epoch, over all ranks and workers together; the epoch
        defaults to that of `position`. The state is a checkpoint of lsiofs, written by the mount, and works
        with any number of ranks and workers. The state at the end of an epoch is the start of the next one.
        """
        if samples is None:
            raise StateError(
                "the mount can't know how many samples of the epoch were trained on: name their number, as in data.state_dict(samples, epoch). "
                "data.checkpoint() has what its worker files have delivered"
            )
        if epoch is None:
            epoch = self.position.epoch
            if self._named_epoch not in (None, epoch):
                raise StateError(f"set_epoch has moved on to epoch {self._named_epoch}: name the epoch of the samples, as in data.state_dict({samples}, {self._named_epoch})")
        return self._document(self._counted(Position(_number(epoch, "epoch"), _number(samples, "samples"))))

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Sets `position` to that of a state. A state of another dataset or order raises `StateError`, and changes nothing."""
        place = state.position(saved)
        own = self._document(place)
        state.compare(saved, own)
        self._position = state.position(own)

    def _counted(self, place: Position) -> Position:
        """A position as counted by a loop. Steps with padded or incomplete batches count beyond the end, and then mean the end.

        The mount must allow for any number of workers. Here, their number and the loader's batches are
        known, so a loop that does not count from 0 in each epoch is detected.
        """
        beyond = 0 if self._beyond is None else int(self._beyond[0])
        if beyond == 0:
            return place
        records = self._records(place.epoch)
        if place.samples <= records:
            return place
        self._require_epoch(place.epoch)
        if place.samples - records >= beyond:
            raise self._too_many(place)
        return Position(place.epoch, records)

    def _too_many(self, place: Position) -> StateError:
        return StateError(
            f"epoch {place.epoch} of {self.path} has {self._records(place.epoch)} records, so {place.samples} samples of it can't have been used: "
            "count those of all ranks together, from the epoch's start"
        )

    def _document(self, place: Position) -> dict[str, Any]:
        """The mount's own checkpoint for a position."""
        if place.epoch < 0 or place.samples < 0:
            raise StateError(f"epoch {place.epoch}, samples {place.samples}: neither can be negative")
        self._check()
        path = f"epoch-{place.epoch}/from-{place.samples}/checkpoint"
        try:
            with builtins.open(os.path.join(self.path, path), "rb") as f:
                return dict(json.load(f))
        except FileNotFoundError:
            pass
        except OSError as e:
            raise explained(e, os.path.join(self.path, path)) from None
        self._check()
        self._require_epoch(place.epoch)
        raise self._too_many(place)

    def checkpoint(self) -> dict[str, Any]:
        """The mount's own checkpoint: where its worker files began, and what they have delivered."""
        return self._json("checkpoint")

    def status(self) -> dict[str, Any]:
        """The mount's status: what readers are waiting for, and what failed."""
        return self._json("status.json")

    def wait(self, epoch: int, seconds: Optional[float] = None) -> None:
        """Waits until an epoch of a growing dataset has started, and starts it when there is enough new data.

        After this many seconds, it raises `EpochNotReady`. The epochs of other datasets always exist.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            try:
                len(self.epoch(epoch).stream())
                return
            except EpochNotReady:
                left = _POLL_SECONDS if end is None else end - time.monotonic()
                if left <= 0:
                    raise
            time.sleep(min(left, _POLL_SECONDS))

    def _json(self, name: str) -> dict[str, Any]:
        self._check()
        return self._identity.json(name)

    def _require_epoch(self, epoch: int) -> None:
        """Raises an error if an epoch does not exist. It never starts one."""
        growing: dict[str, Any] = self.status().get("growing") or {}
        latest = (growing.get("latest") or {}).get("epoch")
        if latest is None or epoch <= latest:
            return
        if epoch == latest + 1:
            raise EpochNotReady(f"{growing.get('next_epoch') or f'epoch {epoch} is not available yet'}: wait for it with data.wait({epoch})")
        raise EpochNotReady(f"epoch {epoch} is not available yet: the latest one is epoch {latest}, and epochs begin one after the other")

    def _records(self, epoch: int) -> int:
        """The number of records in an epoch that has started."""
        return int(self._described(epoch)["records"])

    def _described(self, epoch: int) -> dict[str, Any]:
        """The description of an epoch that has started. Epochs have separate descriptions only if they differ."""
        try:
            with builtins.open(os.path.join(self.path, f"epoch-{epoch}", "dataset.json"), "rb") as f:
                return dict(json.load(f))
        except OSError:
            return self.info


class Epoch:
    """An epoch of a mount, from its record `start` on.

    It is divided among any number of workers; each record goes to one of them. The default is a single
    worker, which gets each record once, also with ``tail="pad"``.
    ``len()`` is the number of records that a single worker gets.
    """

    def __init__(self, mount: Mount, epoch: int, start: int = 0) -> None:
        self.mount, self.epoch, self.start = mount, _number(epoch, "epoch"), _number(start, "start")
        self.path = f"{mount.path}/epoch-{self.epoch}" + (f"/from-{self.start}" if self.start else "")

    def __repr__(self) -> str:
        return f"{self.mount!r}.epoch({self.epoch}, {self.start})"

    def stream(self, worker: int = 0, workers: int = 1, first: int = 0) -> Stream:
        """The file of one of this many workers, from its record `first` on."""
        path = f"{self.path}/worker-{worker}-of-{workers}{self.mount.extension}"
        try:
            return Stream(path, first, self.mount._streams, owner=self.mount)
        except ReadError as e:
            if e.errno != errno.ENOENT:
                raise
        raise self._why_not(path, worker, workers)

    def _why_not(self, path: str, worker: int, workers: int) -> Error:
        """The error for a file that does not exist."""
        if not 0 <= worker < workers:
            return OutOfRange(f"{path} does not exist: there is no worker {worker} of {workers}")
        if workers > _MOST_WORKERS or self.epoch < 0 or self.start < 0:
            return OutOfRange(f"{path} does not exist: epochs, records and workers count from 0, and there are {_MOST_WORKERS} workers at most")
        self.mount._require_epoch(self.epoch)
        records = self.mount._records(self.epoch)
        if self.start > records:
            return OutOfRange(f"{path} does not exist: the epoch has {records} records")
        return ReadError(errno.ENOENT, "it does not exist", path)

    def records(self, worker: int = 0, workers: int = 1) -> Iterator[memoryview]:
        """Views of the records' bytes: `Stream.records`."""
        return self._unpadded(worker, workers).records()

    def samples(self, worker: int = 0, workers: int = 1) -> Iterator[Any]:
        """The decoded records: `Stream.samples`."""
        return self._unpadded(worker, workers).samples()

    def arrays(self, records: int, dtype: Any = None, worker: int = 0, workers: int = 1) -> Iterator[numpy.ndarray[Any, Any]]:
        """Numpy arrays of so many records: `Stream.arrays`."""
        return self._unpadded(worker, workers).arrays(records, dtype)

    def ids(self, worker: int = 0, workers: int = 1) -> Iterator[bytes]:
        """The records' identifiers: `Stream.ids`."""
        return self._unpadded(worker, workers).ids()

    def __len__(self) -> int:
        return len(self._unpadded(0, 1))

    def __iter__(self) -> Iterator[Any]:
        return self.samples()

    def _unpadded(self, worker: int, workers: int) -> Stream:
        """The stream. If it is the only one, without padding, which follows all records: there are no other workers to wait for."""
        stream = self.stream(worker, workers)
        if workers == 1 and self.mount.info["deal"]["tail"] == "pad":
            stream._limit = max(0, self.mount._records(self.epoch) - self.start)
        return stream


def _text(path: Optional[Path]) -> Optional[str]:
    try:
        return None if path is None else os.fspath(path)
    except TypeError:
        raise ArgumentError(f"{path!r:.200} is not a path") from None


def _number(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} ({value!r:.40}) is not a number of whole records or epochs") from None


class _as_file:
    """A state as a file, as long as it is used."""

    def __init__(self, resume: Union[None, Path, Mapping[str, Any]]) -> None:
        self.resume = resume

    def __enter__(self) -> Optional[str]:
        self.own: Optional[str] = None
        if self.resume is None or not isinstance(self.resume, Mapping):
            return _text(self.resume)
        try:
            text = json.dumps(dict(self.resume))
        except (TypeError, ValueError) as e:
            raise StateError(f"resume is not a state of a dataset: {e}") from None
        try:
            descriptor, self.own = tempfile.mkstemp(prefix="lsiofs-", suffix=".json")
            with builtins.open(descriptor, "w") as f:
                f.write(text)
        except OSError as e:
            raise MountError(f"the state can't be written to a temporary file ({e.strerror}: {e.filename}): set TMPDIR") from e
        return self.own

    def __exit__(self, *_: object) -> None:
        if self.own is not None:
            os.remove(self.own)
