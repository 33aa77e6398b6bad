"""Mounts made by a program: how they start, end, and fail."""

import errno
import gc
import itertools
import json
import os
import pathlib
import pickle
import signal
import subprocess
import unittest
import warnings
from unittest import mock

import lsiofs
from lsiofs import dead

from . import mounted


class Beginning(mounted.Case):
    def test_flags_are_those_of_the_command(self):
        data = self.mount(mounted.make_jsonl, workers=3, batch=4, split="0..0.5", seed=7, on_corrupt="skip", memory="64MiB", allow_other=False, epoch=None)
        deal, order = data.info["deal"], data.info["order"]
        self.assertEqual((deal["workers"], deal["batch"], order["seed"], order["split"]["part"]), (3, 4, 7, "0..0.5"))
        self.assertTrue(0 < len(data) < 240)
        self.assertEqual((data.format, data.extension), ("jsonl", ".jsonl"))
        self.assertEqual(data.status()["mount_point"], data.path)

    def test_what_is_wrong_is_an_error_with_the_servers_words(self):
        root = self.made("data", mounted.make_jsonl)
        full = self.made("full", mounted.make_jsonl)
        for words, code, dataset, point, flags in (
            ("unknown flag: --bacth: did you mean --batch", 2, root, None, {"bacth": 3}),
            (r"--workers \(0\) must be between 1 and 65536", 2, root, None, {"workers": 0}),
            ("empty part", 2, root, None, {"split": "1..0"}),
            ("--as tensors:u1 is for format lc0 only", 3, root, None, {"as_": "tensors"}),
            ("nowhere", 3, os.path.join(self.directory, "nowhere"), None, {}),
            ("is not empty", 4, root, full, {}),
            ("does not exist", 4, root, os.path.join(self.directory, "nowhere"), {}),
            ("none.json", 5, root, None, {"resume": os.path.join(self.directory, "none.json")}),
        ):
            with self.subTest(words), self.assertRaisesRegex(lsiofs.MountError, words) as raised:
                lsiofs.mount(dataset, point, index_dir=self.index, **flags)
            self.assertEqual(raised.exception.exit_code, code)
            self.assertEqual(raised.exception.args, (str(raised.exception),))
        self.assertRaises(lsiofs.ArgumentError, lsiofs.mount, root, daemon=True)
        self.assertRaises(lsiofs.ArgumentError, lsiofs.mount, root, log_file="x")

    def test_the_arguments_of_a_server_show_no_secret(self):
        root = self.made("data", mounted.make_tar)
        os.rename(os.path.join(root, "all.tar"), os.path.join(root, "0.tar"))
        os.utime(os.path.join(root, "0.tar"), (10**9, 10**9))
        with mounted.web_server(root) as url, lsiofs.mount(f"{url}/{{0..0}}.tar?sig=secret-word", index_dir=self.index, cache_size="off") as data:
            line = pathlib.Path(f"/proc/{data.status()['process']['pid']}/cmdline").read_bytes()
            self.assertIn(b"http://...\0", line)
            self.assertNotIn(b"secret-word", line)

    def test_a_mixture_has_no_dataset(self):
        a, b = self.made("a", mounted.make_jsonl), self.made("b", mounted.make_jsonl)
        mix = [f"a=70:{a}", f"b=30:{b}"]
        for places in (), (None, self.made("point")):
            with lsiofs.mount(*places, mix=mix, index_dir=self.index) as data:
                self.assertEqual(len(list(data.epoch(0))), len(data))
                self.assertEqual(data.state_dict(10)["order"]["length"], len(data))
        self.assertRaisesRegex(lsiofs.ArgumentError, "name a dataset", lsiofs.mount)

    def test_what_can_not_run_or_has_no_place_is_an_error_of_the_package(self):
        root, broken = self.made("data", mounted.make_jsonl), os.path.join(self.directory, "broken")
        pathlib.Path(broken).write_text("no program")
        os.chmod(broken, 0o755)
        for command in broken, root:
            self.assertRaisesRegex(lsiofs.MountError, "can't be run", lsiofs.mount, root, command=command)
        self.assertRaisesRegex(lsiofs.StateError, "not a state", lsiofs.mount, root, resume={"epoch": object()})
        with mock.patch("tempfile.tempdir", os.path.join(self.directory, "nowhere")):
            self.assertRaisesRegex(lsiofs.MountError, "set TMPDIR", lsiofs.mount, root)
            self.assertRaisesRegex(lsiofs.MountError, "set TMPDIR", lsiofs.mount, root, resume={"epoch": 0})
        data = self.mount(mounted.make_jsonl, workers=2)
        self.assertRaisesRegex(lsiofs.OutOfRange, "has 2 worker files", data.worker, 9)
        self.assertRaises(lsiofs.OutOfRange, data.epoch(0).stream, 2, 2)
        for slip in (
            lambda: lsiofs.mount(5), lambda: lsiofs.mount(root, resume=[1]), lambda: data.epoch("first"), lambda: data.state_dict(2.5),
            lambda: data.state_dict("many", 0), lambda: data.epoch(0).arrays(0),
        ):
            self.assertRaises(lsiofs.ArgumentError, slip)

    def test_a_warning_of_the_server_is_a_warning(self):
        root = self.made("data", mounted.make_jsonl)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with lsiofs.mount(root, index_dir=self.index, split="0..0.000000001"):
                pass
        self.assertTrue([w for w in seen if issubclass(w.category, lsiofs.MountWarning) and w.filename == __file__], seen)

    def test_the_command_is_the_one_that_is_named(self):
        before = os.environ["LSIOFS_COMMAND"]
        self.addCleanup(os.environ.__setitem__, "LSIOFS_COMMAND", before)
        root = self.made("data", mounted.make_jsonl)
        os.environ["LSIOFS_COMMAND"] = root
        self.assertRaisesRegex(lsiofs.CommandNotFound, "not a program", lsiofs.mount, root)
        lsiofs.mount(root, index_dir=self.index, command=before).close()
        with self.assertRaisesRegex(lsiofs.MountError, "ended with code 1 before the mount was ready"):
            lsiofs.mount(root, command="/bin/false")
        del os.environ["LSIOFS_COMMAND"]
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = self.directory
        os.symlink(before, os.path.join(self.directory, "lsiofs"))
        self.assertEqual(lsiofs.command(), os.path.join(self.directory, "lsiofs"))
        os.remove(os.path.join(self.directory, "lsiofs"))
        with self.assertRaisesRegex(lsiofs.CommandNotFound, "pip install"):
            lsiofs.mount(root)


class Ending(mounted.Case):
    def test_a_mount_is_gone_at_the_end_of_with(self):
        with self.mount(mounted.make_jsonl) as data:
            self.assertTrue(mounted.is_mount(data.path))
            pid = data.status()["process"]["pid"]
        self.assertFalse(mounted.is_mount(data.path))
        self.assertFalse(os.path.exists(data.path))
        self.assertFalse(mounted.is_running(pid))
        data.close()

    def test_a_mount_point_that_was_named_stays(self):
        point = self.made("point")
        with self.mount(mounted.make_jsonl, pathlib.Path(point)) as data:
            self.assertEqual(data.path, point)
        self.assertEqual(os.listdir(point), [])

    def test_a_mount_ends_when_nothing_refers_to_it(self):
        root = self.made("data", mounted.make_jsonl)
        with mounted.windows_of(500):
            samples = lsiofs.mount(root, index_dir=self.index).epoch(0).samples()
            path = os.path.dirname(os.path.dirname(samples.gi_frame.f_locals["windows"].gi_frame.f_locals["self"].path))
            self.assertEqual(len(list(itertools.islice(samples, 230))), 230)
            gc.collect()
            self.assertTrue(mounted.is_mount(path))
            self.assertEqual(len(list(samples)), 10)
        del samples
        gc.collect()
        self.assertFalse(mounted.is_mount(path))

    def test_readers_that_are_left_do_not_hold_up_the_end_and_get_errors(self):
        data = self.mount(mounted.make_jsonl)
        with mounted.windows_of(500):
            samples = data.epoch(0).samples()
            next(samples)
            data.close()
            with self.assertRaises(lsiofs.ServerDied):
                list(samples)
        self.assertEqual(mounted.reading_threads(), [])

    def test_a_forked_process_does_not_end_the_mount(self):
        data = self.mount(mounted.make_jsonl)
        self.assertEqual(mounted.in_child(lambda: data.close() or len(list(data.epoch(0)))), 240)
        self.assertEqual(len(list(data.epoch(0))), 240)

    def test_an_opened_mount_is_not_ended(self):
        data = self.mount(mounted.make_jsonl)
        with lsiofs.open(data.path) as again:
            self.assertEqual(again.info, data.info)
        copy = pickle.loads(pickle.dumps(data))
        copy.close()
        del copy, again
        gc.collect()
        self.assertEqual(len(list(data.epoch(0))), 240)
        self.assertRaisesRegex(lsiofs.Error, "not a mount of lsiofs", lsiofs.open, self.directory)

    def run_program(self, body):
        """Runs a program that mounts, and prints the mount point and the server's process ID."""
        root = self.made("data", mounted.make_jsonl)
        program = f"""
import json, os, signal, sys, time
import lsiofs, lsiofs.stream
lsiofs.stream.WINDOW = 500
data = lsiofs.mount({root!r}, index_dir={self.index!r})
print(json.dumps([data.path, data.status()["process"]["pid"]]), flush=True)
{body}
"""
        p = subprocess.Popen([mounted.PYTHON, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        path, server = json.loads(p.stdout.readline())
        return p, path, server

    def require_gone(self, path, server):
        self.until("the server has ended", lambda: not mounted.is_running(server))
        self.assertFalse(mounted.is_mount(path))
        self.assertFalse(os.path.exists(path))

    def test_the_mount_ends_with_its_program_whatever_ends_that(self):
        for name, body, code in (
            ("the end", "", 0),
            ("an exception", "raise SystemExit(3)", 3),
            ("at once, by os._exit", "os._exit(4)", 4),
            ("a crash", "os.abort()", -signal.SIGABRT),
            ("killed", "os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
            ("in the middle of reading", "next(data.epoch(0).samples()); s = data.epoch(0).samples(); next(s); os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ):
            with self.subTest(name):
                p, path, server = self.run_program(body)
                self.assertEqual(p.wait(mounted.PATIENCE), code)
                self.require_gone(path, server)
                os.rename(os.path.join(self.directory, "data"), os.path.join(self.directory, "used " + name))

    def test_readers_that_outlive_a_killed_program_get_errors(self):
        said = os.path.join(self.directory, "said")
        p, path, server = self.run_program(f"""
for child in range(2):
    if os.fork() == 0:
        samples = data.epoch(0).samples(child, 2)
        next(samples)
        os.write(1, b"begun\\n")  # one write, because the other reader also prints
        try:
            while True:
                for sample in samples: time.sleep(0.01)
                samples = data.epoch(0).samples(child, 2)
        except BaseException as e:
            with open({said!r} + str(child), "w") as f: f.write(type(e).__name__)
            os._exit(0)
time.sleep(600)
""")
        self.assertEqual([p.stdout.readline(), p.stdout.readline()], [b"begun\n", b"begun\n"])
        p.kill()
        self.require_gone(path, server)
        for child in "01":
            self.until("a reader has said what it got", lambda: os.path.exists(said + child) and os.path.getsize(said + child))
            with open(said + child) as f:
                self.assertIn(f.read(), ("ServerDied", "MountClosed"))

    def test_ctrl_c_is_for_the_program_to_deal_with(self):
        p, path, server = self.run_program("""
try:
    print("ready", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print(len(list(data.epoch(0))), flush=True)
""")
        self.assertEqual(p.stdout.readline(), b"ready\n")
        os.killpg(p.pid, signal.SIGINT)
        self.assertEqual(p.stdout.readline(), b"240\n")
        self.assertEqual(p.wait(mounted.PATIENCE), 0)
        self.require_gone(path, server)


class Places(mounted.Case):
    """Mounts that replace others."""

    def killed(self, point):
        data = self.mount(mounted.make_jsonl, point)
        os.kill(data.status()["process"]["pid"], signal.SIGKILL)
        self.until("the mount is dead", lambda: dead._is_dead(point))
        return data

    def test_the_end_of_an_object_leaves_the_mount_that_was_made_after_it(self):
        point = self.made("point")
        for end in "close", "del":
            old = self.killed(point)
            new = self.mount(mounted.make_jsonl, point)
            self.assertRaisesRegex(lsiofs.MountClosed, "another mount is at its place", old.epoch(0).samples)
            self.assertRaises(lsiofs.MountClosed, old.state_dict, 5)
            if end == "close":
                old.close()
            del old
            gc.collect()
            self.assertEqual(len(list(new.epoch(0))), 240)
            new.close()
            self.assertFalse(mounted.is_mount(point))

    def test_a_dead_mount_is_taken_away_by_its_own_object_alone(self):
        point = self.made("point")
        link = os.path.join(self.directory, "link")
        os.symlink(point, link)
        old = self.killed(link)
        dead.take_away(lsiofs.command(), point, "0:1")
        self.assertTrue(mounted.is_mount(point))
        old.close()
        self.assertFalse(mounted.is_mount(point))

    def test_another_mount_at_the_place_of_an_opened_one_is_not_read(self):
        point = self.made("point")
        first = self.mount(mounted.make_jsonl, point, batch=4)
        data = lsiofs.open(point)
        stream = data.epoch(0).stream()
        want = list(data.epoch(0).ids())
        first.close()
        for use in data.status, data.epoch(0).samples, data.worker, lambda: data.state_dict(5), lambda: stream[0], lambda: next(stream.ids()):
            self.assertRaisesRegex(lsiofs.MountClosed, "unmounted", use)
        other = self.mount(mounted.make_jsonl, point, batch=4, seed=7)
        for use in data.epoch(0).samples, data.worker, lambda: data.state_dict(5), lambda: stream[0], lambda: len(stream), lambda: next(stream.ids()):
            self.assertRaisesRegex(lsiofs.StateError, "seed was 0, and is 7", use)
        other.close()
        self.mount(mounted.make_jsonl, point, batch=4, workers=3)  # a service that was restarted
        self.assertEqual(list(data.epoch(0).ids()), want)
        self.assertEqual(len(list(stream)), 240)

    def test_what_is_closed_says_so(self):
        data = self.mount(mounted.make_jsonl)
        stream = data.epoch(0).stream()
        data.close()
        for use in data.status, data.checkpoint, data.epoch(0).samples, data.worker, lambda: data.state_dict(5), lambda: next(stream.records()):
            self.assertRaisesRegex(lsiofs.MountClosed, "this mount is closed", use)

    def test_dead_mounts_of_programs_that_were_killed_with_their_servers_are_cleaned_up(self):
        root = self.made("data", mounted.make_jsonl)
        temporary = self.made("tmp")
        program = f"import lsiofs, sys\nd = lsiofs.mount({root!r}, index_dir={self.index!r})\nprint(d.status()['process']['pid'], d.path, flush=True)\nsys.stdin.read()"
        environment = {**os.environ, "TMPDIR": temporary}
        alive = subprocess.Popen([mounted.PYTHON, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(lambda: (alive.communicate(), None))
        living = alive.stdout.readline().split()[1].decode()
        for _ in range(2):
            p = subprocess.Popen([mounted.PYTHON, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            server, path = p.stdout.readline().split()
            p.send_signal(signal.SIGSTOP)
            os.kill(int(server), signal.SIGKILL)
            p.kill()
            p.communicate()
            self.until("the mount is dead", lambda: dead._is_dead(path.decode()))
        subprocess.run([mounted.PYTHON, "-c", program], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        self.assertEqual([os.path.join(temporary, name) for name in os.listdir(temporary)], [living])
        self.assertTrue(mounted.is_mount(living))


class Errors(mounted.Case):
    def test_a_read_that_fails_has_the_servers_words(self):
        data = self.mount(mounted.make_jsonl, io="pread")
        for i in range(4):
            os.truncate(os.path.join(self.directory, "make_jsonl", f"{i}.jsonl"), 10)
        stream = data.epoch(0).stream()
        with self.assertRaisesRegex(lsiofs.ReadError, r"\.jsonl") as raised:
            list(stream)
        self.assertIsInstance(raised.exception, OSError)
        self.assertEqual((raised.exception.errno, raised.exception.filename), (errno.EIO, stream.path))
        self.assertIn("epoch-0/worker-0-of-1.jsonl: ", raised.exception.strerror)
        self.assertIn(raised.exception.strerror, [p["text"] for p in data.status()["last_errors"]])
        again = pickle.loads(pickle.dumps(raised.exception))
        self.assertEqual((type(again), str(again)), (lsiofs.ReadError, str(raised.exception)))
        # As torch raises it again from a worker.
        self.assertIn("in a worker", str(lsiofs.ReadError("in a worker: " + str(again))))

    def test_a_server_that_was_killed_is_said_to_have_died(self):
        data = self.mount(mounted.make_jsonl)
        with mounted.windows_of(500):
            samples = data.epoch(0).samples()
            next(samples)
            os.kill(data.status()["process"]["pid"], signal.SIGKILL)
            with self.assertRaisesRegex(lsiofs.ServerDied, "mount again"):
                list(samples)
            for reads in data.status, data.checkpoint, lambda: data.state_dict(0), lambda: data.epoch(0).stream(), lambda: lsiofs.open(data.path):
                self.assertRaises(lsiofs.ServerDied, reads)
        data.close()
        self.assertFalse(mounted.is_mount(data.path))
        self.assertFalse(os.path.exists(data.path))

    def test_a_worker_file_from_before_a_restore_is_stale(self):
        data = self.mount(mounted.make_jsonl)
        with mounted.windows_of(500):
            samples = data.worker(0).samples()
            next(samples)
            with open(os.path.join(data.path, "checkpoint"), "w") as f:
                f.write('{"epoch": 1}')
            with self.assertRaisesRegex(lsiofs.StaleStream, "open it again"):
                list(samples)
        self.assertEqual([s["y"] for s in data.worker(0).samples()], [s["y"] for s in data.epoch(1)])


if __name__ == "__main__":
    unittest.main()
