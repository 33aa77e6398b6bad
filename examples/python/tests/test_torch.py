"""The dataset for torch: in DataLoaders of any kind, and in one that saves the state of its workers."""

import itertools
import multiprocessing
import pickle
import os
import subprocess
import unittest
import warnings
from unittest import mock

import lsiofs

from . import mounted

try:
    import torch
    from torch.utils.data import DataLoader
except ImportError:
    torch = None

BATCH = 4


def target(sample):
    return sample["y"]


def numbers(batches):
    return [int(y) for batch in batches for y in batch]


def in_turn(loaders):
    """The steps of all ranks together."""
    for batches in itertools.zip_longest(*loaders):
        yield from (b for b in batches if b is not None)


class Untouched(unittest.TestCase):
    def test_torch_and_numpy_are_not_imported_before_they_are_used(self):
        program = "import sys, lsiofs; assert not {'torch', 'numpy'} & sys.modules.keys()"
        subprocess.run([mounted.PYTHON, "-c", program], check=True, timeout=mounted.PATIENCE)


@unittest.skipIf(torch is None, "torch is not installed")
class Torch(mounted.Case):
    def setUp(self):
        super().setUp()
        told = warnings.catch_warnings()
        told.__enter__()
        self.addCleanup(told.__exit__, None, None, None)
        warnings.filterwarnings("ignore", 'with tail="keep"', lsiofs.MountWarning)
        self.data = self.mount(mounted.make_jsonl, batch=BATCH, seed=2)
        self.want = [[s["y"] for s in self.data.epoch(e)] for e in range(3)]

    def loader(self, dataset, workers, **more):
        return DataLoader(dataset, batch_size=BATCH, num_workers=workers, **more)

    def test_ranks_and_workers_read_the_epoch_in_its_order(self):
        for ranks, workers in (1, 0), (1, 1), (2, 2), (3, 1):
            loaders = [self.loader(self.data.torch(target, rank=r, ranks=ranks), workers) for r in range(ranks)]
            self.assertEqual(numbers(in_turn(loaders)), self.want[0])
        self.assertRaises(ValueError, self.data.torch, rank=1, ranks=1)

    def test_a_run_goes_on_with_other_ranks_and_workers(self):
        seen, samples = [], 0
        for ranks, workers, steps in (2, 2, 7), (3, 1, 5), (1, 3, None):
            self.data.load_state_dict(self.data.state_dict(samples))
            loaders = [iter(self.loader(self.data.torch(target, rank=r, ranks=ranks), workers)) for r in range(ranks)]
            for batch in itertools.islice(in_turn(loaders), None if steps is None else steps * ranks):
                seen.append(batch)
                samples += BATCH
        self.assertEqual(numbers(seen), self.want[0])

    def test_a_mount_that_is_made_of_a_state_goes_on_twice(self):
        seen, samples, data = [], 0, self.data
        for ranks, workers, steps in (2, 2, 7), (3, 1, 5), (1, 3, None):
            loaders = [iter(self.loader(data.torch(target, rank=r, ranks=ranks), workers)) for r in range(ranks)]
            for batch in itertools.islice(in_turn(loaders), None if steps is None else steps * ranks):
                seen.append(batch)
                samples += BATCH
            saved = data.state_dict(samples)
            del loaders
            data = self.mount(mounted.make_jsonl, resume=saved)  # its batch is the state's
        self.assertEqual(numbers(seen), self.want[0])

    def test_workers_may_be_forked_or_spawned_and_persist(self):
        # Each spawned worker imports torch, which takes seconds. Those that do not persist are in the next test.
        for method, persistent in ("fork", False), ("fork", True), ("spawn", True):
            with self.subTest(method, persistent=persistent):
                dataset = self.data.torch(target)
                loader = self.loader(dataset, 2, multiprocessing_context=method, persistent_workers=persistent)
                self.assertEqual(numbers(loader), self.want[0])
                dataset.set_epoch(1)
                self.assertEqual(numbers(loader), self.want[1])
                dataset.set_epoch(2, 80)
                self.assertEqual(numbers(loader), self.want[2][80:])

    def test_a_set_epoch_while_workers_begin_overtakes_none(self):
        dataset = self.data.torch(target)
        loader = self.loader(dataset, 2, multiprocessing_context="spawn")
        batches = iter(loader)
        dataset.set_epoch(2)  # its workers have not started
        self.assertEqual(numbers(batches), self.want[0])
        self.assertEqual(numbers(loader), self.want[2])

    def test_samples_are_the_same_with_decode_and_without(self):
        data = self.mount(mounted.make_tar, batch=BATCH)
        want = list(itertools.islice(data.epoch(0).samples(), BATCH))
        for decode in None, dict:
            for workers in 0, 2:
                (batch,) = itertools.islice(self.loader(data.torch(decode), workers, collate_fn=list), 1)
                self.assertEqual(batch, want)
                self.assertEqual({type(v) for sample in batch for v in sample.values()}, {bytes, str})
        (batch,) = itertools.islice(self.loader(self.data.torch(raw=True), 1, collate_fn=list), 1)
        self.assertEqual(batch, [bytes(r) for r in itertools.islice(self.data.epoch(0).records(), BATCH)])

    def test_a_batch_that_is_not_the_mounts_is_an_error_where_a_number_of_samples_would_name_others(self):
        for workers, ranks in (2, 1), (1, 2), (0, 2):
            dataset = self.data.torch(target, rank=0, ranks=ranks)
            for size in 8, 3, None:
                with self.subTest(workers=workers, ranks=ranks, size=size):
                    with self.assertRaisesRegex(lsiofs.Error, f"batch_size is {size or 1}, and the mount's batch is 4"):
                        next(iter(DataLoader(dataset, batch_size=size, num_workers=workers)))
        whole = numbers(DataLoader(self.data.torch(target, any_batch=True), batch_size=8, num_workers=2))
        self.assertEqual(sorted(whole), sorted(self.want[0]))
        self.assertEqual(numbers(DataLoader(self.data.torch(target), batch_size=7)), self.want[0])  # of one file
        contiguous = self.mount(mounted.make_jsonl, batch=BATCH, deal="contiguous").torch(target)
        self.assertRaisesRegex(lsiofs.Error, "contiguous", next, iter(self.loader(contiguous, 2)))

    def test_the_length_of_a_loader_is_that_of_its_epoch(self):
        for tail in "keep", "drop", "pad":
            data = self.mount(mounted.make_jsonl, batch=BATCH, tail=tail, sizes={"records": 240})
            for ranks, workers, samples in (1, 0, 0), (1, 2, 8), (3, 2, 0), (2, 3, 48), (3, 1, 236):
                dataset = data.torch(target, rank=1 % ranks, ranks=ranks, samples=samples, epoch=1)
                loader = self.loader(dataset, workers)
                with self.subTest(tail, ranks=ranks, workers=workers), warnings.catch_warnings():
                    warnings.filterwarnings("error", "Length of IterableDataset")
                    self.assertEqual(len(loader), len(list(loader)))
        self.assertEqual(len(self.data.torch(samples=8)), 232)

    def test_the_first_set_epoch_of_the_resumed_epoch_keeps_its_place(self):
        for workers in 0, 2:
            self.data.load_state_dict({"epoch": 1, "samples": 80})
            dataset = self.data.torch(target)
            loader = self.loader(dataset, workers)
            for epoch, want in (1, self.want[1][80:]), (2, self.want[2]), (1, self.want[1]):
                dataset.set_epoch(epoch)
                self.assertEqual(numbers(loader), want)
            dataset = self.data.torch(target)
            loader = self.loader(dataset, workers)
            self.assertEqual(numbers(loader), self.want[1][80:])
            dataset.set_epoch(1)  # again, and in full
            self.assertEqual(numbers(loader), self.want[1])
        self.assertRaises(lsiofs.ArgumentError, dataset.set_epoch, -1)
        self.assertRaisesRegex(lsiofs.StateError, "name the epoch", self.mount_of_epoch(2).state_dict, 4)

    def mount_of_epoch(self, epoch):
        data = self.mount(mounted.make_jsonl)
        data.torch().set_epoch(epoch)
        return data

    def test_what_a_loop_counts_beyond_the_end_is_the_end_and_what_none_can_count_is_refused(self):
        for tail, batch, size, ranks, workers, first, counted in (
            ("pad", 64, 64, 2, 3, 236, 620),  # more files than batches
            ("keep", 64, 64, 3, 2, 192, 384),
            ("drop", 64, 128, 1, 0, 0, 256),  # a single file, and a loader with batches of its own
            ("keep", 1, 500, 1, 1, 0, 500),
        ):
            data = self.mount(mounted.make_jsonl, batch=batch, tail=tail)
            dataset = data.torch(target, rank=0, ranks=ranks, samples=first)
            steps = len(list(DataLoader(dataset, batch_size=size, num_workers=workers)))
            with self.subTest(tail, batch=batch, size=size, ranks=ranks, workers=workers):
                self.assertEqual(first + steps * size * ranks, counted)
                self.assertEqual(data.state_dict(counted, 0), data.state_dict(240, 0))
                for samples in 240 + ranks * max(workers, 1) * (batch + size), 3 * counted:
                    self.assertRaisesRegex(lsiofs.StateError, "240 records.*from the epoch's start", data.state_dict, samples, 0)

    def test_ranks_are_those_of_torch_distributed(self):
        data = self.mount(mounted.make_jsonl, batch=BATCH, tail="drop")
        with mock.patch.dict(os.environ, WORLD_SIZE="2"):
            with self.assertWarnsRegex(lsiofs.MountWarning, "WORLD_SIZE is 2.*init_process_group") as told:
                self.assertEqual((data.torch().rank, data.torch().ranks), (0, 1))
            self.assertEqual(told.filename, __file__)
            self.assertEqual(data.torch(rank=1, ranks=2).rank, 1)
            torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    self.assertEqual((data.torch().rank, data.torch().ranks), (0, 1))
                    with mock.patch.multiple(torch.distributed, get_rank=lambda: 1, get_world_size=lambda: 3):
                        self.assertEqual((data.torch().rank, data.torch().ranks), (1, 3))
            finally:
                torch.distributed.destroy_process_group()
        self.assertRaisesRegex(lsiofs.ArgumentError, "both", data.torch, rank=1)

    def test_ranks_of_a_mount_that_keeps_the_tail_are_warned_of(self):
        with self.assertWarnsRegex(lsiofs.MountWarning, 'tail="drop"') as told:
            warnings.simplefilter("always")
            self.data.torch(rank=0, ranks=2)
        self.assertEqual(told.filename, __file__)

    def test_rows_of_arrays_can_be_written_to(self):
        import numpy

        def make_npy(root):
            numpy.save(os.path.join(root, "a.npy"), numpy.arange(160, dtype="f4").reshape(40, 4))

        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch warns of those that can't
            rows = torch.cat(list(self.loader(self.mount(make_npy, batch=BATCH).torch(), 0)))
        self.assertEqual(float(rows.sum()), 160 * 159 / 2)

    def test_an_error_of_a_worker_is_told(self):
        def fails(sample):
            raise lsiofs.ReadError(5, "made to fail", "file")

        for workers in 0, 1:
            with self.assertRaisesRegex(lsiofs.ReadError, "made to fail"):
                list(self.loader(self.data.torch(fails), workers))

    def test_a_dataset_is_pickled_without_its_server(self):
        dataset = self.data.torch(target, epoch=1, samples=8)
        again = pickle.loads(pickle.dumps(dataset))
        self.assertEqual([again.epoch, again.samples, again._told.tolist()], [1, 8, [1, 8, 0]])
        self.assertEqual(list(again), self.want[1][8:])


def stateful_worker(dataset, worker, workers, state, requests, replies):
    """What a worker of torchdata's StatefulDataLoader does (stateful_dataloader/worker.py of 0.11).

    It loads the dataset's state, makes the iterator, and, after each batch and at the end, asks the
    dataset for its state, which goes out with the batch.
    """
    from torch.utils.data._utils import worker as of_torch

    of_torch._worker_info = of_torch.WorkerInfo(id=worker, num_workers=workers, seed=0, dataset=dataset)
    if state is not None:
        dataset.load_state_dict(state)
    iterator = iter(dataset)
    replies.send((None, dataset.state_dict()))
    for again in iter(requests.recv, None):
        if again:  # a persistent worker starts again
            iterator = iter(dataset)
            replies.send((None, dataset.state_dict()))
            continue
        batch = list(itertools.islice(iterator, BATCH))
        replies.send((batch or None, dataset.state_dict()))


class StatefulLoader:
    """Yields batches of each worker in turn; keeps the workers' states as of the last batch that was yielded."""

    def __init__(self, dataset, workers, states=None, method="fork"):
        context = multiprocessing.get_context(method)
        self.pipes, self.processes = [], []
        for w in range(workers):
            requests, ours = context.Pipe(duplex=False)
            mine, replies = context.Pipe(duplex=False)
            p = context.Process(target=stateful_worker, args=(dataset, w, workers, states and states[w], requests, replies))
            p.start()
            self.processes.append(p)
            self.pipes.append((ours, mine))
        self.states = [mine.recv()[1] for _, mine in self.pipes]

    def begin_again(self):
        for w, (ours, mine) in enumerate(self.pipes):
            ours.send(True)
            self.states[w] = mine.recv()[1]

    def __iter__(self):
        left = list(range(len(self.pipes)))
        while left:
            for w in list(left):
                ours, mine = self.pipes[w]
                ours.send(False)
                batch, self.states[w] = mine.recv()
                if batch is None:
                    left.remove(w)
                else:
                    yield batch

    def close(self):
        for ours, mine in self.pipes:
            ours.send(None)
        for p in self.processes:
            p.join()


@unittest.skipIf(torch is None, "torch is not installed")
class Stateful(mounted.Case):
    def setUp(self):
        super().setUp()
        self.data = self.mount(mounted.make_jsonl, batch=BATCH, sizes={"records": 90})  # workers have unequal parts
        self.want = [s["y"] for s in self.data.epoch(0)]

    def loader(self, *args, **more):
        loader = StatefulLoader(*args, **more)
        self.addCleanup(loader.close)
        return loader

    def test_it_goes_on_after_any_batch(self):
        for workers in 1, 3:
            whole = [b for b in self.loader(self.data.torch(target), workers)]
            self.assertEqual(numbers(whole), self.want)
            for batches in range(0, len(whole) + 1, 3):
                first = self.loader(self.data.torch(target), workers)
                taken = list(itertools.islice(first, batches))
                # A worker that has nothing left is not asked for its part again.
                rest = list(self.loader(self.data.torch(target), workers, first.states))
                self.assertEqual(sorted(numbers(taken + rest)), sorted(self.want))

    def test_it_goes_on_with_workers_that_are_spawned(self):
        first = self.loader(self.data.torch(target), 2, method="spawn")
        taken = list(itertools.islice(first, 4))
        rest = list(self.loader(self.data.torch(target), 2, first.states, method="spawn"))
        self.assertEqual(numbers(taken + rest), self.want)

    def test_a_state_of_the_end_begins_anew_where_the_loader_does(self):
        first = self.loader(self.data.torch(target), 2)
        list(first)
        second = self.loader(self.data.torch(target), 2, first.states)
        second.begin_again()
        self.assertEqual(numbers(second), self.want)

    def test_a_state_of_other_workers_or_another_dataset_is_refused(self):
        dataset = self.data.torch(target)
        samples = iter(dataset)
        for _ in range(10):
            next(samples)
        state = dataset.state_dict()
        again = self.data.torch(target)
        again.load_state_dict(state)
        self.assertEqual(list(again), self.want[10:])
        other = self.data.torch(target, rank=0, ranks=2)
        other.load_state_dict(state)
        self.assertRaisesRegex(lsiofs.StateError, "only the same ranks and workers", iter, other)
        self.assertRaisesRegex(lsiofs.StateError, "another dataset", again.load_state_dict, {**state, "dataset": "0" * 64})
        self.assertRaisesRegex(lsiofs.StateError, "state of the mount", again.load_state_dict, self.data.state_dict(8))
        for wrong in {}, [1], {**state, "taken": "many"}:
            self.assertRaisesRegex(lsiofs.StateError, "not a state", again.load_state_dict, wrong)


if __name__ == "__main__":
    unittest.main()
