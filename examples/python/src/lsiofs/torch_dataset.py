"""A mount as a torch dataset. Importing this module, as `Mount.torch` does, imports torch."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional

import torch
from torch.utils.data import IterableDataset, get_worker_info

from .errors import ArgumentError, Error, MountWarning, StateError
from .state import is_count

if TYPE_CHECKING:
    from .mounts import Mount


class TorchDataset(IterableDataset):  # type: ignore
    """An epoch of a mount, or the rest of it, for one of `ranks` ranks. `Mount.torch` creates it.

    Worker w of rank r's DataLoader reads file w·ranks + r. Mount with ``batch`` equal to the DataLoader's
    batch_size: then step k of all ranks together is the same part of the epoch for any number of ranks
    and workers. So the number of samples that all ranks have trained on is the position to resume from,
    also with other numbers of them: ``data.state_dict(samples, epoch)``. With ``tail="drop"``, all ranks
    get the same number of samples. With another batch_size, that number would stand for other samples
    than those that were trained on, so it is an error, except for a program that reads a single file.
    `any_batch` allows it, for programs that save only at the end of epochs.

    `rank` and `ranks` default to those of torch.distributed if it is initialized, else to 0 of 1.

    `decode` converts a sample (`lsiofs.Stream.samples`) to what batches are made of, in the worker. With
    `raw`, it gets the record's bytes instead.

    A DataLoader starts new workers for each iteration: call `set_epoch` before it. Persistent workers
    see that as well. Attributes: `epoch` and `samples`, where the next iteration begins; `rank`, `ranks`.
    """

    def __init__(
        self, mount: Mount, decode: Optional[Callable[[Any], Any]], rank: Optional[int], ranks: Optional[int], epoch: int, samples: int,
        raw: bool, any_batch: bool,
    ) -> None:
        super().__init__()
        self.rank, self.ranks = _ranks(rank, ranks)
        self.mount, self.decode, self.raw = mount, decode or _as_it_is, raw
        deal = mount.info["deal"]
        self.batch = int(deal["batch"])
        # Whether a step over any number of files is a part of the epoch, for loaders with this batch size.
        self._in_turn = deal["deal"] == "interleaved"
        if self.ranks > 1 and deal["tail"] == "keep":
            warnings.warn(
                f"with tail=\"keep\" some of the {self.ranks} ranks get more samples than others, and wait for them for ever where ranks wait "
                "for each other: mount with tail=\"drop\" or tail=\"pad\"", MountWarning, stacklevel=3,
            )
        self.epoch, self.samples = epoch, samples
        # The resumed epoch, until set_epoch is called: the first call keeps the position in it.
        self._resumed: Optional[int] = epoch
        # For this process' file, because a StatefulDataLoader requests it in each worker: the number
        # of samples taken, and where the next iteration begins.
        self._file: Optional[str] = None
        self._taken = self._resume = 0
        self._any_batch = any_batch
        # The values of set_epoch, for persistent workers. Their first iteration uses the attributes
        # above, which were copied when the workers started. The last number is 1 once an iteration
        # has begun in any process.
        self._told = torch.tensor([epoch, samples, 0]).share_memory_()  # type: ignore
        self._iterated = False
        if mount._beyond is None:
            mount._beyond = torch.tensor([0]).share_memory_()  # type: ignore
        self._beyond = mount._beyond

    def set_epoch(self, epoch: int, samples: Optional[int] = None) -> None:
        """Makes the next iteration start in this epoch after its first `samples`. Call it between iterations, in the main process.

        Without `samples`, it starts at the beginning of the epoch. Only the first call, if it is for the
        resumed epoch, keeps the position to resume from.
        """
        if not is_count(epoch) or not (samples is None or is_count(samples)):
            raise ArgumentError(f"set_epoch({epoch!r}, {samples!r}): both must be whole numbers, 0 or more")
        if samples is None:
            samples = self.samples if epoch == self._resumed and not self._told[2] else 0
        self._resumed = None
        self.epoch, self.samples, self._resume = epoch, samples, 0
        self._told[0], self._told[1] = epoch, samples
        self.mount._named_epoch = epoch

    def __len__(self) -> int:
        """The number of samples that this rank gets in the next iteration, from all workers of its loader."""
        loader = sys._getframe(1).f_locals.get("self")
        workers = loader.num_workers if isinstance(loader, torch.utils.data.DataLoader) else 0
        files = max(workers, 1) * self.ranks
        epoch = self.mount.epoch(self.epoch, self.samples)
        return sum(len(epoch.stream(number, files)) for number in range(self.rank, files, self.ranks))

    def __iter__(self) -> Iterator[Any]:
        # Not a generator: the position is taken now, not at the first sample. A StatefulDataLoader
        # makes one iterator from a state that was at an end, and then another one to continue.
        me = get_worker_info()  # type: ignore
        worker, workers = (me.id, me.num_workers) if me else (0, 1)
        if me is not None and self._iterated and not self._resume:
            self.epoch, self.samples, _ = self._told.tolist()
        self._iterated = True
        self._told[2] = 1
        begin, self._resume = self._resume, 0
        number, files = worker * self.ranks + self.rank, workers * self.ranks
        file = f"worker-{number}-of-{files}"
        if begin and self._file != file:
            raise StateError(f"the state is of {self._file}, and this is {file}: a StatefulDataLoader's state fits only the same ranks and workers; data.state_dict(samples, epoch) fits others, too")
        self._file, self._taken = file, begin
        stream = self.mount.epoch(self.epoch, self.samples).stream(number, files, begin)
        return self._decoded(map(bytes, stream.records()) if self.raw else stream.samples(), files)

    def _decoded(self, samples: Iterator[Any], files: int) -> Iterator[Any]:
        size = _batch_size(sys._getframe(1))
        if size is not None:
            # In the last round, each file has a batch of the mount, and the loader's last batch may be incomplete.
            self._beyond[0] = max(int(self._beyond[0]), files * (self.batch + size))
            if files > 1 and not self._any_batch:
                self._check_batch(size)
        for sample in samples:
            self._taken += 1
            yield self.decode(sample)

    def _check_batch(self, size: int) -> None:
        """Raises an error if the batch size of the DataLoader that requests a sample is not the mount's."""
        if size == self.batch and self._in_turn:
            return
        if not self._in_turn:
            raise Error(
                "a mount with --deal contiguous gives each worker a part of its own, so the samples of a step are not the next ones of the "
                "epoch, and a saved number of samples would name others: mount without it, or use data.torch(…, any_batch=True) and save at the end of epochs"
            )
        raise Error(
            f"the loader's batch_size is {size}, and the mount's batch is {self.batch}: with several workers or ranks the number of samples to "
            f"save would name others than those that were trained on. Mount with batch={size} (lsiofs mount --batch {size}), or use "
            "data.torch(…, any_batch=True) and save at the end of epochs"
        )

    def state_dict(self) -> dict[str, Any]:
        """The position in this worker's file, which a StatefulDataLoader (of torchdata) requests from each worker."""
        self._any_batch = True  # it counts by file
        return {"dataset": self.mount.info["fingerprint"], "epoch": self.epoch, "samples": self.samples, "file": self._file, "taken": self._taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        names = {"dataset", "epoch", "samples", "file", "taken"}
        if not isinstance(state, Mapping) or not names <= state.keys():
            if isinstance(state, Mapping) and "done" in state:
                raise StateError("this is a state of the mount (data.state_dict): give it to data.load_state_dict, or to mount as resume=STATE, and then make the dataset")
            raise StateError(f"this is not a state of a dataset of a StatefulDataLoader: {state!r:.200}")
        if not all(is_count(state[name]) for name in ("epoch", "samples", "taken")):
            raise StateError(f"this is not a state of a dataset of a StatefulDataLoader: {state!r:.200}")
        if state["dataset"] != self.mount.info["fingerprint"]:
            raise StateError(f"the state is from another dataset: it has {state['dataset']!s:.16}…, and this mount has {self.mount.info['fingerprint']:.16}…: mount the dataset that it is of")
        self._any_batch = True
        self.epoch, self.samples = state["epoch"], state["samples"]
        self._file, self._taken, self._resume = state["file"], state["taken"], state["taken"]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_iterated": False}


def _batch_size(caller: Any) -> Optional[int]:
    """The batch size of the DataLoader that requests a sample; None if it is not a DataLoader.

    A dataset does not know its loader. The code that fetches a batch has a list of that many indexes.
    """
    if caller.f_code.co_name != "fetch" or "possibly_batched_index" not in caller.f_locals:
        return None
    asked = caller.f_locals["possibly_batched_index"]
    return len(asked) if isinstance(asked, (list, tuple)) else 1


def _as_it_is(sample: Any) -> Any:
    return sample


def _ranks(rank: Optional[int], ranks: Optional[int]) -> tuple[int, int]:
    """The rank and the number of ranks: as given, else those of torch.distributed."""
    if (rank is None) != (ranks is None):
        raise ArgumentError("name both rank= and ranks=, or neither where torch.distributed is initialized")
    if rank is None or ranks is None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():  # type: ignore
            return distributed.get_rank(), distributed.get_world_size()  # type: ignore
        launched = os.environ.get("WORLD_SIZE", "1")
        if launched not in ("", "1"):
            warnings.warn(
                f"WORLD_SIZE is {launched}, and torch.distributed is not initialized, so this rank trains on all samples, as all others do: call "
                "torch.distributed.init_process_group before, or name rank= and ranks=", MountWarning, stacklevel=4,
            )
        return 0, 1
    if not 0 <= rank < ranks:
        raise ArgumentError(f"rank ({rank}) must be between 0 and {ranks - 1}, as ranks is {ranks}")
    return rank, ranks
