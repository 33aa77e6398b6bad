"""The dataset of torch: in DataLoaders of any kind, and in one that saves the state of its workers."""

import itertools
import multiprocessing
import pickle
import subprocess
import unittest

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
        for method in "fork", "spawn":
            for persistent in False, True:
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
        dataset.set_epoch(2)  # its workers have not begun
        self.assertEqual(numbers(batches), self.want[0])
        self.assertEqual(numbers(loader), self.want[2])

    def test_without_decode_samples_have_bytes(self):
        (batch,) = itertools.islice(self.loader(self.mount(mounted.make_tar).torch(), 1, collate_fn=list), 1)
        self.assertEqual({type(v) for sample in batch for v in sample.values()}, {bytes})
        (batch,) = itertools.islice(self.loader(self.data.torch(raw=True), 1, collate_fn=list), 1)
        self.assertEqual(batch, [bytes(r) for r in itertools.islice(self.data.epoch(0).records(), BATCH)])

    def test_an_error_of_a_worker_is_told(self):
        def fails(sample):
            raise lsiofs.ReadError(5, "made to fail", "file")

        for workers in 0, 1:
            with self.assertRaisesRegex(lsiofs.ReadError, "made to fail"):
                list(self.loader(self.data.torch(fails), workers))

    def test_a_dataset_is_pickled_without_its_server(self):
        dataset = self.data.torch(target, epoch=1, samples=8)
        again = pickle.loads(pickle.dumps(dataset))
        self.assertEqual([again.epoch, again.samples, again._told.tolist()], [1, 8, [1, 8]])
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
        if again:  # a persistent worker begins once more
            iterator = iter(dataset)
            replies.send((None, dataset.state_dict()))
            continue
        batch = list(itertools.islice(iterator, BATCH))
        replies.send((batch or None, dataset.state_dict()))


class StatefulLoader:
    """Batches of each worker in turn, and their states as of the last batch that was given out."""

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
                # A worker that has nothing left is not asked for its part once more.
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
        self.assertRaisesRegex(lsiofs.StateError, "have to stay", iter, other)
        self.assertRaisesRegex(lsiofs.StateError, "another dataset", again.load_state_dict, {**state, "dataset": "0" * 64})


if __name__ == "__main__":
    unittest.main()
