"""Streams: what they yield, and how they read ahead."""

import gc
import itertools
import json
import os
import shutil
import threading
import unittest
from unittest import mock

import lsiofs
from lsiofs import stream

from . import mounted


class Records(mounted.Case):
    def test_records_are_those_of_the_file_for_windows_of_any_size(self):
        for make in mounted.make_jsonl, mounted.make_tar, mounted.make_lines:
            data = self.mount(make, seed=3)
            path = data.epoch(0).stream().path
            with open(path, "rb") as f:
                whole = f.read()
            places = data.epoch(0).stream().offsets().tolist()
            want = [whole[a:b] for a, b in zip(places, places[1:])]
            for window in 1, 1000, 4190208:
                with mounted.windows_of(window):
                    held = list(data.epoch(0).records())
                    self.assertEqual([bytes(r) for r in held], want)
                    self.assertEqual([bytes(r) for r in lsiofs.Stream(path, 17)], want[17:])
            self.assertEqual([bytes(lsiofs.Stream(path)[i]) for i in (0, 5, -1)], [want[0], want[5], want[-1]])
            self.assertRaises(IndexError, lambda: lsiofs.Stream(path)[len(want)])

    def test_a_stream_of_many_records_reads_their_places_in_parts(self):
        data = self.mount(mounted.make_jsonl, sizes={"records": 1000})
        want = [bytes(r) for r in data.epoch(2).records()]
        with mock.patch.multiple(stream, FIRST_OFFSETS=3, MOST_OFFSETS=16, MOST_IDS=7), mounted.windows_of(500):
            self.assertEqual([bytes(r) for r in data.epoch(2).records()], want)
            for multiple in 1, 5, 40:
                sizes = [len(w.offsets) - 1 for w in data.epoch(2).stream().windows(multiple)]
                self.assertEqual(sum(sizes), 1000)
                self.assertEqual({n % multiple for n in sizes[:-1]}, {0})
            self.assertEqual(len(set(data.epoch(2).ids())), 1000)

    def test_every_worker_has_its_part_and_together_they_have_all(self):
        data = self.mount(mounted.make_jsonl, batch=4)
        whole = [s["y"] for s in data.epoch(1).samples()]
        self.assertEqual(sorted(whole), list(range(240)))
        parts = [[s["y"] for s in data.epoch(1).samples(w, 3)] for w in range(3)]
        self.assertEqual(sorted(itertools.chain(*parts)), list(range(240)))
        self.assertEqual([s["y"] for s in data.epoch(1, 100)], whole[100:])
        self.assertEqual((len(data), len(data.epoch(1)), len(data.epoch(1, 100))), (240, 240, 140))
        self.assertEqual(list(data.epoch(1).ids())[100:], list(data.epoch(1, 100).ids()))
        self.assertEqual([s["y"] for s in data.worker(0).samples()], [s["y"] for s in data.epoch(0).samples()])
        for wrong in (lambda: data.epoch(0).stream(3, 3), lambda: data.epoch(0, 1 << 40).stream(), lambda: data.epoch(-1).stream()):
            self.assertRaises(lsiofs.Error, wrong)

    def test_samples_are_what_the_format_has(self):
        data = self.mount(mounted.make_tar)
        for sample in data.epoch(0).samples():
            n = int(sample["__key__"][-3:])
            self.assertEqual(sample["__key__"], "n0%d/%03d" % (n % 2, n))
            self.assertEqual({type(v) for k, v in sample.items() if k != "__key__"}, {bytes})
            self.assertEqual((sample["jpg"], sample["cls"]), (bytes([n]) * (700 + n), b"%d" % n))
        lines = list(self.mount(mounted.make_lines, shuffle="none").epoch(0).samples())
        self.assertEqual(lines, ["one", "two", "\udcff three"] * 20)

    def test_a_tfrecord_is_its_payload(self):
        self.assertEqual(bytes(lsiofs.stream.formats.parser("tfrecord")(memoryview(b"l" * 8 + b"c" * 4 + b"payload" + b"c" * 4))), b"payload")

    def test_a_view_outlives_its_iterator_and_its_mount(self):
        data = self.mount(mounted.make_jsonl)
        with mounted.windows_of(1000):
            records = data.epoch(0).records()
            kept = [next(records) for _ in range(100)]
        copies = [bytes(r) for r in kept]
        del records
        data.close()
        self.assertEqual([bytes(r) for r in kept], copies)


class Restores(mounted.Case):
    """What is read from a worker file when a checkpoint is restored."""

    def setUp(self):
        super().setUp()
        self.data = self.mount(mounted.make_jsonl)
        self.want = [[s["y"] for s in self.data.epoch(e)] for e in range(3)]
        self.restore(0, 200)

    def restore(self, epoch, samples=0):
        with open(os.path.join(self.data.path, "checkpoint"), "w") as f:
            json.dump({"epoch": epoch, "samples": samples}, f)

    def test_each_iteration_has_the_whole_of_what_the_file_has_then(self):
        worker = self.data.worker(0)
        for epoch, samples in (0, 200), (1, 0), (2, 239), (1, 100):
            self.restore(epoch, samples)
            left = self.want[epoch][samples:]
            self.assertEqual([s["y"] for s in worker.samples()], left)
            self.assertEqual((len(worker), len(list(worker.ids())), len(worker.offsets())), (len(left), len(left), len(left) + 1))
            self.assertEqual(json.loads(bytes(worker[-1]))["y"], left[-1])
            self.assertRaises(lsiofs.OutOfRange, lambda: worker[len(left)])

    def test_a_place_that_was_counted_before_is_stale(self):
        worker = self.data.worker(0, first=5)
        self.assertEqual([s["y"] for s in worker.samples()], self.want[0][205:])
        self.restore(1)
        for use in worker.samples, worker.ids, worker.records, lambda: worker.windows(3):
            self.assertRaisesRegex(lsiofs.StaleStream, "record 5", next, use())

    def test_a_fork_goes_on_with_the_same_file_or_not_at_all(self):
        self.restore(0)
        with mounted.windows_of(500):
            samples = self.data.worker(0).samples()
            for _ in range(50):
                next(samples)
            self.restore(0)
            self.assertEqual(mounted.in_child(lambda: [s["y"] for s in samples]), "StaleStream")
            self.assertRaises(lsiofs.StaleStream, list, samples)

    def test_files_that_are_opened_around_a_restore_are_opened_again(self):
        original, opened = stream._File.__init__, []

        def restoring(f, path):
            original(f, path)
            opened.append(path)
            if len(opened) == 2:  # the data; the one before it is for the stream
                self.restore(1)

        with mock.patch.object(stream._File, "__init__", restoring):
            self.assertEqual([s["y"] for s in self.data.worker(0).samples()], self.want[1])
        self.assertEqual(len(opened), 5)

    def test_a_copy_of_a_stream_is_read_as_well(self):
        path = os.path.join(self.directory, "copy.jsonl")
        for extension in ".offsets", ".jsonl":
            shutil.copy(os.path.join(self.data.path, "epoch-1/worker-0-of-1" + extension), path.replace(".jsonl", extension))
        self.assertEqual([s["y"] for s in lsiofs.Stream(path).samples()], self.want[1])


class Ahead(mounted.Case):
    def setUp(self):
        super().setUp()
        self.data = self.mount(mounted.make_jsonl)
        self.want = [s["y"] for s in self.data.epoch(0)]
        small = mounted.windows_of(500)
        small.__enter__()
        self.addCleanup(small.__exit__, None, None, None)
        self.addCleanup(lambda: self.assertEqual(mounted.reading_threads(), []))

    def test_a_stream_of_one_window_needs_no_thread(self):
        with mounted.windows_of(1 << 20):
            samples = self.data.epoch(0).samples()
            next(samples)
            self.assertEqual(mounted.reading_threads(), [])

    def test_no_more_than_two_windows_are_read_ahead(self):
        whole = list(self.data.epoch(0).stream().windows())
        self.assertGreater(len(whole), 10)
        read = []
        original = stream._File.read
        with mock.patch.object(stream._File, "read", lambda f, at, size: (read.append(f.path), original(f, at, size))[1]):
            windows = self.data.epoch(0).stream().windows()
            next(windows)
            next(windows)
            path = self.data.epoch(0).stream().path
            self.until("two windows are read ahead of those that were taken", lambda: read.count(path) == 4)
            self.assertEqual(read.count(path), 4)
            windows.close()

    def test_the_thread_ends_with_its_iterator(self):
        def begun():
            samples = self.data.epoch(0).samples()
            for _ in range(50):
                next(samples)
            self.assertEqual(len(mounted.reading_threads()), 1)
            return samples

        with self.subTest("at the end"):
            self.assertEqual(len(list(begun())), 190)
            self.assertEqual(mounted.reading_threads(), [])
        with self.subTest("closed"):
            begun().close()
            self.assertEqual(mounted.reading_threads(), [])
        with self.subTest("no longer used"):
            begun()
            self.assertEqual(mounted.reading_threads(), [])
        with self.subTest("in a cycle that is collected"):
            cycle = [begun()]
            cycle.append(cycle)
            del cycle
            gc.collect()
            self.assertEqual(mounted.reading_threads(), [])
        with self.subTest("left by an exception"):
            with self.assertRaises(ZeroDivisionError):
                for sample in self.data.epoch(0):
                    1 / (200 - sample["y"])
            self.assertEqual(mounted.reading_threads(), [])

    def test_an_error_comes_in_its_place_and_ends_the_thread(self):
        original = stream._File.read
        path = self.data.epoch(0).stream().path
        reads = []

        def failing(f, at, size):
            reads.append(f.path)
            if reads.count(path) == 6:
                raise lsiofs.ReadError(5, "made to fail", path)
            return original(f, at, size)

        places = [len(w.offsets) - 1 for w in self.data.epoch(0).stream().windows()]
        with mock.patch.object(stream._File, "read", failing):
            samples, got = self.data.epoch(0).samples(), []
            with self.assertRaisesRegex(lsiofs.ReadError, "made to fail"):
                for s in samples:
                    got.append(s["y"])
        self.assertEqual(got, self.want[: sum(places[:5])])
        self.assertEqual(mounted.reading_threads(), [])

    def test_an_iterator_goes_on_in_a_fork_and_in_its_parent(self):
        samples = self.data.epoch(0).samples()
        first = [next(samples)["y"] for _ in range(50)]
        rest = mounted.in_child(lambda: [s["y"] for s in samples])
        self.assertEqual(first + rest, self.want)
        self.assertEqual(first + [s["y"] for s in samples], self.want)

    def test_a_fork_that_leaves_an_iterator_does_not_disturb_its_parent(self):
        samples = self.data.epoch(0).samples()
        first = [next(samples)["y"] for _ in range(50)]
        self.assertEqual(mounted.in_child(lambda: samples.close()), None)
        self.assertEqual(first + [s["y"] for s in samples], self.want)

    def test_threads_may_iterate_at_once(self):
        got = {}

        def read(name):
            got[name] = [s["y"] for s in self.data.epoch(0)]

        threads = [threading.Thread(target=read, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(list(got.values()), [self.want] * 8)

    def test_a_program_may_end_in_the_middle(self):
        import subprocess

        program = f"""
import lsiofs, lsiofs.stream
lsiofs.stream.WINDOW = 500
samples = lsiofs.open({self.data.path!r}).epoch(0).samples()
for _ in range(50): print(next(samples)["y"])
"""
        done = subprocess.run([mounted.PYTHON, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=mounted.PATIENCE)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(json.loads(b"[" + b",".join(done.stdout.split()) + b"]"), self.want[:50])

    def test_no_descriptor_is_left(self):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            samples = self.data.epoch(0).samples()
            next(samples)
            samples.close()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)


if __name__ == "__main__":
    unittest.main()
