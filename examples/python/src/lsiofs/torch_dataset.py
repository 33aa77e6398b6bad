"""A mount as a dataset of torch. torch is imported with this module, which `Mount.torch` imports."""

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
    """An epoch of a mount, or the rest of it, for one of `ranks` ranks: `Mount.torch` makes it.

    Worker w of rank r's DataLoader reads file w·ranks + r. Mount with ``batch`` as the DataLoader's
    batch_size: then step k of all ranks together is the same stretch of the epoch, however many ranks
    and workers there are. So the number of samples that all ranks have trained on says where to go on,
    with any other numbers: ``data.state_dict(samples, epoch)``. ``tail="drop"`` gives all ranks equally
    many. With another batch_size that number would name other samples than those that were trained on,
    so it is an error, but for a program that reads a single file. `any_batch` allows it, for programs
    that save at the end of epochs only.

    `rank` and `ranks` are those of torch.distributed where it is initialized, and else 0 of 1.

    `decode` makes what batches are of from a sample (`lsiofs.Stream.samples`), in the worker. With
    `raw`, it gets the record's bytes instead.

    A DataLoader makes its workers anew for each of its iterations: set the epoch before, with
    `set_epoch`, which workers that persist see as well. Attributes: `epoch` and `samples`, where the
    next iteration begins; `rank`, `ranks`.
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
        # Whether steps of any number of files are stretches of the epoch, for loaders of this batch.
        self._in_turn = deal["deal"] == "interleaved"
        if self.ranks > 1 and deal["tail"] == "keep":
            warnings.warn(
                f"with tail=\"keep\" some of the {self.ranks} ranks get more samples than others, and wait for them for ever where ranks wait "
                "for each other: mount with tail=\"drop\" or tail=\"pad\"", MountWarning, stacklevel=3,
            )
        self.epoch, self.samples = epoch, samples
        # The epoch that is resumed, until set_epoch was called: the first call keeps the place in it.
        self._resumed: Optional[int] = epoch
        # Of this process' file, as a StatefulDataLoader asks for it in each worker: what was taken,
        # and where the next iteration begins.
        self._file: Optional[str] = None
        self._taken = self._resume = 0
        self._any_batch = any_batch
        # What set_epoch has said, for workers that persist. Their first iteration is that of the
        # attributes above, which were copied when the workers began: nothing can overtake them.
        # The last number is 1 when an iteration has begun, in whichever process.
        self._told = torch.tensor([epoch, samples, 0]).share_memory_()  # type: ignore
        self._iterated = False
        if mount._beyond is None:
            mount._beyond = torch.tensor([0]).share_memory_()  # type: ignore
        self._beyond = mount._beyond

    def set_epoch(self, epoch: int, samples: Optional[int] = None) -> None:
        """The next iteration is of this epoch, behind its first `samples`. Call it between iterations, in the main process.

        Without `samples` it begins at the epoch's start; only the first set_epoch, if it is of the epoch
        that is resumed, keeps the place where that goes on.
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
        """How many samples this rank gets in the next iteration: of ``len(loader)``, by all workers of that loader."""
        loader = sys._getframe(1).f_locals.get("self")
        workers = loader.num_workers if isinstance(loader, torch.utils.data.DataLoader) else 0
        files = max(workers, 1) * self.ranks
        epoch = self.mount.epoch(self.epoch, self.samples)
        return sum(len(epoch.stream(number, files)) for number in range(self.rank, files, self.ranks))

    def __iter__(self) -> Iterator[Any]:
        # Not a generator: the place is taken now, not with the first sample. A StatefulDataLoader
        # makes an iterator of a state that was at an end, and then another one, for what comes next.
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
            # The last round is a batch of the mount for each file, and the loader's last batch of each may not be full.
            self._beyond[0] = max(int(self._beyond[0]), files * (self.batch + size))
            if files > 1 and not self._any_batch:
                self._check_batch(size)
        for sample in samples:
            self._taken += 1
            yield self.decode(sample)

    def _check_batch(self, size: int) -> None:
        """Raises an error if the DataLoader that asks for a sample makes other batches than the mount deals."""
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
        """What a StatefulDataLoader (of torchdata) asks each of its workers for: the place in this worker's file."""
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
    """The batch size of the DataLoader that asks for a sample, None where another program does.

    A dataset is not told of its loader. What fetches batches has a list of as many numbers.
    """
    if caller.f_code.co_name != "fetch" or "possibly_batched_index" not in caller.f_locals:
        return None
    asked = caller.f_locals["possibly_batched_index"]
    return len(asked) if isinstance(asked, (list, tuple)) else 1


def _as_it_is(sample: Any) -> Any:
    return sample


def _ranks(rank: Optional[int], ranks: Optional[int]) -> tuple[int, int]:
    """The rank and their number: what is named, else what torch.distributed has."""
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
