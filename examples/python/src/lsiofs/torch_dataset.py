"""A mount as a dataset of torch. torch is imported with this module, which `Mount.torch` imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional

import torch
from torch.utils.data import IterableDataset, get_worker_info

from . import formats
from .errors import StateError

if TYPE_CHECKING:
    from .mounts import Mount


class TorchDataset(IterableDataset):  # type: ignore
    """An epoch of a mount, or the rest of it, for one of `ranks` ranks: `Mount.torch` makes it.

    Worker w of rank r's DataLoader reads file w·ranks + r. Mount with ``batch`` as the DataLoader's
    batch_size: then step k of all ranks together is the same stretch of the epoch, however many ranks
    and workers there are. So the number of samples that all ranks have trained on says where to go on,
    with any other numbers: ``data.state_dict(samples)``. ``tail="drop"`` gives all ranks equally many.

    `decode` makes what batches are of from a sample (`lsiofs.Stream.samples`), in the worker. Without
    it samples are given with bytes for views. With `raw`, it gets the record's view instead.

    A DataLoader makes its workers anew for each of its iterations: set the epoch before, with
    `set_epoch`, which workers that persist see as well.
    """

    def __init__(
        self, mount: Mount, decode: Optional[Callable[[Any], Any]], rank: int, ranks: int, epoch: int, samples: int, raw: bool
    ) -> None:
        super().__init__()
        if not 0 <= rank < ranks:
            raise ValueError(f"rank {rank} of {ranks}: ranks count from 0")
        self.mount, self.decode, self.rank, self.ranks, self.raw = mount, decode or formats.owned, rank, ranks, raw
        self.epoch, self.samples = epoch, samples
        # Of this process' file, as a StatefulDataLoader asks for it in each worker: what was taken,
        # and where the next iteration begins.
        self._file: Optional[str] = None
        self._taken = self._resume = 0
        # What set_epoch has said, for workers that persist. Their first iteration is that of the
        # attributes above, which were copied when the workers began: nothing can overtake them.
        self._told = torch.tensor([epoch, samples]).share_memory_()  # type: ignore
        self._iterated = False

    def set_epoch(self, epoch: int, samples: int = 0) -> None:
        """The next iteration is of this epoch, behind its first `samples`. Call it between iterations, in the main process."""
        self.epoch, self.samples, self._resume = epoch, samples, 0
        self._told[0], self._told[1] = epoch, samples

    def __iter__(self) -> Iterator[Any]:
        # Not a generator: the place is taken now, not with the first sample. A StatefulDataLoader
        # makes an iterator of a state that was at an end, and then another one, for what comes next.
        me = get_worker_info()  # type: ignore
        worker, workers = (me.id, me.num_workers) if me else (0, 1)
        if me is not None and self._iterated and not self._resume:
            self.epoch, self.samples = self._told.tolist()
        self._iterated = True
        begin, self._resume = self._resume, 0
        number, files = worker * self.ranks + self.rank, workers * self.ranks
        file = f"worker-{number}-of-{files}"
        if begin and self._file != file:
            raise StateError(f"the state is of {self._file}, and this is {file}: the ranks and workers of a StatefulDataLoader have to stay; data.state_dict(samples) is good for others")
        self._file, self._taken = file, begin
        stream = self.mount.epoch(self.epoch, self.samples).stream(number, files, begin)
        return self._decoded(stream.records() if self.raw else stream.samples())

    def _decoded(self, samples: Iterator[Any]) -> Iterator[Any]:
        for sample in samples:
            self._taken += 1
            yield self.decode(sample)

    def state_dict(self) -> dict[str, Any]:
        """What a StatefulDataLoader (of torchdata) asks each of its workers for: the place in this worker's file."""
        return {"dataset": self.mount.info["fingerprint"], "epoch": self.epoch, "samples": self.samples, "file": self._file, "taken": self._taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["dataset"] != self.mount.info["fingerprint"]:
            raise StateError(f"the state is of another dataset: of {state['dataset']:.16}…, and this one is {self.mount.info['fingerprint']:.16}…")
        self.epoch, self.samples = state["epoch"], state["samples"]
        self._file, self._taken, self._resume = state["file"], state["taken"], state["taken"]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_iterated": False}
