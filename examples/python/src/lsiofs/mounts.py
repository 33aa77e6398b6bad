"""A mount of a dataset: one that this program makes, or one that is there."""

from __future__ import annotations

import builtins
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Optional, Union

from . import labels, state
from .errors import Error, explained
from .server import Server, Value
from .state import Position
from .stream import Stream

if TYPE_CHECKING:
    import numpy

    from .torch_dataset import TorchDataset

Path = Union[str, "os.PathLike[str]"]


def mount(
    dataset: Path,
    mountpoint: Optional[Path] = None,
    *,
    resume: Union[None, Path, Mapping[str, Any]] = None,
    command: Optional[str] = None,
    **flags: Value,
) -> Mount:
    """Mounts a dataset, and gives the mount when it can be read.

    `flags` are those of ``lsiofs mount``, with ``_`` for ``-``: ``workers=4, batch=64, split="0..0.9",
    seed=1, memory="4GiB"``. The command checks them; what is wrong is a `MountError` with its words.
    `mountpoint` is an empty directory; without one it is a temporary one, removed at the end.
    `resume` is a state that `Mount.state_dict` gave, or a file that holds one: the mount has its order
    then, and its place. `command` is the program to start, if not the one that `lsiofs.command` finds.

    The mount ends with ``with``, with `Mount.close`, when nothing refers to it any more, and with this
    process, whatever ends that. The first mount of a dataset indexes it, which may take a while.
    """
    with _as_file(resume) as file:
        if file is not None:
            flags["resume"] = file
        server = Server(os.fspath(dataset), None if mountpoint is None else os.fspath(mountpoint), flags, command)
    return Mount(server.mountpoint, server)


def open(mountpoint: Path) -> Mount:  # noqa: A001 - lsiofs.open
    """A mount that is there, made by ``lsiofs mount`` or another program. Closing it does not unmount it."""
    return Mount(os.path.abspath(mountpoint))


class Mount:
    """A mounted dataset.

    It can be sent to other processes, where it refers to the same mount and does not own it.
    Attributes: `path`, the mount point; `info`, what the mount's ``dataset.json`` has.
    """

    def __init__(self, path: str, server: Optional[Server] = None) -> None:
        self.path = path
        self._server = server
        self.info: dict[str, Any] = self._json("dataset.json")
        self._position: Union[Position, Error]
        try:
            self._position = state.mounted_at(self.checkpoint())
        except Error as e:
            self._position = e  # it is told when it is wanted

    def __repr__(self) -> str:
        return f"lsiofs.Mount({self.path!r}, {self.info['records']} records of {self.info['dataset']})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_server": None}

    def __enter__(self) -> Mount:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmounts what `mount` has mounted, and waits for the server's end. It may be called again."""
        if self._server is not None:
            self._server.close()

    # What is read.

    @property
    def format(self) -> str:
        """How the dataset is cut into records: ``tar``, ``jsonl`` …"""
        return str(self.info["format"]["name"])

    @property
    def _streams(self) -> str:
        """The format of its streams: that of the dataset, or npy where those are of rows made of records."""
        return "npy" if "rows" in self.info else self.format

    @property
    def extension(self) -> str:
        """The extension of its streams, with the dot."""
        return str(self.info["extension"])

    def __len__(self) -> int:
        """How many records an epoch has, before they are dealt to workers."""
        return int(self.info["records"])

    def epoch(self, epoch: int = 0, start: int = 0) -> Epoch:
        """A whole epoch, or what comes behind its first `start` records. Reading it changes nothing in the mount."""
        return Epoch(self, epoch, start)

    def worker(self, worker: int = 0, first: int = 0) -> Stream:
        """The file ``worker-N``: what this worker still has to read, from the mount's checkpoint on.

        What is read of it counts as delivered in the mount's checkpoint; up to some windows are read ahead.
        """
        return Stream(f"{self.path}/worker-{worker}{self.extension}", first, self._streams, owner=self)

    def classes(self, names: Optional[Iterable[str]] = None) -> labels.Classes:
        """The classes of samples that lie in a directory for each: `names`, else the directories of the dataset.

        These are all of the dataset's, also where a split leaves a class without records.
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
            raise Error(f"the classes of {root} can't be listed here ({e.strerror}): name them, as classes(['cat', 'dog'])") from e

    def torch(
        self,
        decode: Optional[Callable[[Any], Any]] = None,
        *,
        rank: int = 0,
        ranks: int = 1,
        epoch: Optional[int] = None,
        samples: Optional[int] = None,
        raw: bool = False,
    ) -> TorchDataset:
        """An IterableDataset for torch's DataLoader: see `lsiofs.torch_dataset.TorchDataset`."""
        from .torch_dataset import TorchDataset

        if epoch is None:
            at = self.position
            epoch, samples = at.epoch, at.samples if samples is None else samples
        return TorchDataset(self, decode, rank, ranks, epoch, samples or 0, raw)

    # Where it stands.

    @property
    def position(self) -> Position:
        """Where training begins: what `load_state_dict` was given, else what the mount has resumed from."""
        if isinstance(self._position, Error):
            raise self._position
        return self._position

    def state_dict(self, samples: Optional[int] = None, epoch: Optional[int] = None) -> dict[str, Any]:
        """What to save with a model: this dataset and order, the epoch, and how many of its samples were trained on.

        `samples` counts from the epoch's start, over all ranks and workers together; the epoch is
        `position`'s where none is named. The state is a checkpoint of lsiofs, and good for any number of
        ranks and workers.
        """
        if samples is None or epoch is None:
            at = self.position
            samples = at.samples if samples is None else samples
            epoch = at.epoch if epoch is None else epoch
        return state.document(self.checkpoint(), Position(int(epoch), int(samples)))

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Sets `position` to that of a state. One of another dataset or order is a `StateError`."""
        self._position = state.position(saved, self.checkpoint())

    def checkpoint(self) -> dict[str, Any]:
        """The mount's own checkpoint: where its worker files began, and what they have delivered."""
        return self._json("checkpoint")

    def status(self) -> dict[str, Any]:
        """What the mount says about itself: what readers wait for, what failed."""
        return self._json("status.json")

    def _json(self, name: str) -> dict[str, Any]:
        path = os.path.join(self.path, name)
        try:
            with builtins.open(path, "rb") as f:
                return dict(json.load(f))
        except FileNotFoundError as e:
            raise Error(f"{self.path} is no mount of lsiofs: it has no {name}") from e
        except OSError as e:
            raise explained(e, path) from None


class Epoch:
    """An epoch of a mount, from its record `start` on.

    It is dealt to any number of workers, each record to one of them; by default to a single one.
    ``len()`` is how many records a single worker gets.
    """

    def __init__(self, mount: Mount, epoch: int, start: int = 0) -> None:
        self.mount, self.epoch, self.start = mount, epoch, start
        self.path = f"{mount.path}/epoch-{epoch}" + (f"/from-{start}" if start else "")

    def __repr__(self) -> str:
        return f"{self.mount!r}.epoch({self.epoch}, {self.start})"

    def stream(self, worker: int = 0, workers: int = 1, first: int = 0) -> Stream:
        """The file of one of so many workers, from its record `first` on."""
        path = f"{self.path}/worker-{worker}-of-{workers}{self.mount.extension}"
        try:
            return Stream(path, first, self.mount._streams, owner=self.mount)
        except FileNotFoundError:
            raise Error(f"{path} does not exist: {self._why_not(worker, workers)}") from None

    def _why_not(self, worker: int, workers: int) -> str:
        if not 0 <= worker < workers:
            return f"there is no worker {worker} of {workers}"
        if not 0 <= self.start <= len(self.mount):
            return f"the epoch has {len(self.mount)} records"
        return "epochs and workers count from 0, and there are 65536 workers at most"

    def records(self, worker: int = 0, workers: int = 1) -> Iterator[memoryview]:
        """Views of the records' bytes: `Stream.records`."""
        return self.stream(worker, workers).records()

    def samples(self, worker: int = 0, workers: int = 1) -> Iterator[Any]:
        """What the records hold: `Stream.samples`."""
        return self.stream(worker, workers).samples()

    def arrays(self, records: int, dtype: Any = None, worker: int = 0, workers: int = 1) -> Iterator[numpy.ndarray[Any, Any]]:
        """Numpy arrays of so many records: `Stream.arrays`."""
        return self.stream(worker, workers).arrays(records, dtype)

    def ids(self, worker: int = 0, workers: int = 1) -> Iterator[bytes]:
        """The records' identifiers: `Stream.ids`."""
        return self.stream(worker, workers).ids()

    def __len__(self) -> int:
        return len(self.stream())

    def __iter__(self) -> Iterator[Any]:
        return self.samples()


class _as_file:
    """A state as a file, while it is used."""

    def __init__(self, resume: Union[None, Path, Mapping[str, Any]]) -> None:
        self.resume = resume

    def __enter__(self) -> Optional[str]:
        self.own: Optional[str] = None
        if self.resume is None or not isinstance(self.resume, Mapping):
            return None if self.resume is None else os.fspath(self.resume)
        descriptor, self.own = tempfile.mkstemp(prefix="lsiofs-", suffix=".json")
        with builtins.open(descriptor, "w") as f:
            json.dump(self.resume, f)
        return self.own

    def __exit__(self, *_: object) -> None:
        if self.own is not None:
            os.remove(self.own)
