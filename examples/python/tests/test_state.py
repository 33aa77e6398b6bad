"""States: what is saved, and what is restored."""

import json
import os
import subprocess
import unittest

import lsiofs

from . import mounted


class State(mounted.Case):
    def test_a_state_goes_on_where_it_was_made(self):
        data = self.mount(mounted.make_jsonl, seed=5)
        want = [s["y"] for s in data.epoch(2, 70)]
        saved = json.loads(json.dumps(data.state_dict(70, epoch=2)))
        data.close()
        for resumed in self.mount(mounted.make_jsonl, resume=saved), self.mount(mounted.make_jsonl, resume=saved, workers=3):
            self.assertEqual(resumed.position, (2, 70))
            self.assertEqual([s["y"] for s in resumed.epoch(*resumed.position)], want)
            again = resumed.state_dict(70)
            self.assertEqual(again["done"][0], saved["done"][0])
            self.assertEqual({**again, "done": []}, {**saved, "done": []})
        again = self.mount(mounted.make_jsonl, seed=5)
        self.assertEqual(again.position, (0, 0))
        again.load_state_dict(saved)
        self.assertEqual((again.position, again.state_dict(80)["done"][0]["consumed"]), ((2, 70), [80]))

    def test_a_state_is_a_checkpoint_of_the_command(self):
        data = self.mount(mounted.make_jsonl, seed=5, split="0.5..1", groups=2, batch=4)
        path = os.path.join(self.directory, "state.json")
        with open(path, "w") as f:
            json.dump(data.state_dict(64, epoch=1), f)
        data.close()
        subprocess.run([lsiofs.command(), "checkpoint", "show", path], check=True, stdout=subprocess.DEVNULL)
        resumed = self.mount(mounted.make_jsonl, resume=path)
        self.assertEqual(resumed.position, (1, 64))
        self.assertEqual([s["y"] for s in resumed.worker(0).samples()], [s["y"] for s in resumed.epoch(1, 64)])

    def test_a_resumed_mount_deals_as_the_one_before(self):
        data = self.mount(mounted.make_jsonl, seed=5, workers=2, batch=16)
        saved = data.state_dict(64, epoch=1)
        want = [list(data.epoch(1, 64).ids(w, 2)) for w in range(2)]
        data.close()
        resumed = self.mount(mounted.make_jsonl, resume=saved)
        self.assertEqual([list(resumed.worker(w).ids()) for w in range(2)], want)
        self.assertEqual(self.mount(mounted.make_jsonl, resume=saved, batch=3).checkpoint()["done"][-1]["batch"], 3)

    def test_a_mount_begins_at_its_epoch(self):
        data = self.mount(mounted.make_jsonl, epoch=3)
        self.assertEqual(data.position, (3, 0))
        list(data.worker(0))  # reading a worker file does not move the position
        self.assertEqual(lsiofs.open(data.path).position, (3, 0))

    def test_what_does_not_fit_is_refused_and_changes_nothing(self):
        data = self.mount(mounted.make_jsonl, seed=5)
        saved = data.state_dict(70)
        data.load_state_dict({"epoch": 4, "samples": 20})
        for words, state in (
            ("another dataset", {**saved, "dataset": "0" * 64}),
            ("another order: seed was 6, and is 5", {**saved, "order": {**saved["order"], "seed": 6}}),
            ("another order: split was", {**saved, "order": {**saved["order"], "split": {}}}),
            ("version 2", {**saved, "version": 2}),
            ("not a state of a dataset: it has no order", {k: v for k, v in saved.items() if k != "order"}),
            ("not a state", {"model": 1}),
            ("not a state", [1]),
            ("not a state", {**saved, "epoch": -1}),
            ("not a state", {**saved, "done": [1]}),
            ("each worker", {**saved, "done": [{"batch": 1, "consumed": [3, 4]}]}),
            ("samples", {"epoch": 0, "samples": "many"}),
        ):
            with self.subTest(words), self.assertRaisesRegex(lsiofs.StateError, words):
                data.load_state_dict(state)
            self.assertEqual(data.position, (4, 20))
        for words, args in (
            ("how many samples", ()), ("negative", (-1,)), ("negative", (1, -1)),
            ("has 240 records, so 1099511627776 samples of it can't have been used", (1 << 40, 0)),
        ):
            self.assertRaisesRegex(lsiofs.StateError, words, data.state_dict, *args)
        self.assertRaisesRegex(lsiofs.StateError, "240 records", data.load_state_dict, {"epoch": 0, "samples": 1 << 40})

    def test_a_state_of_the_last_steps_is_that_of_the_epochs_end_where_padding_made_it(self):
        for tail in "pad", "keep":
            data = self.mount(mounted.make_jsonl, batch=64, tail=tail)
            saved = data.state_dict(2 * 2 * 64)  # of 240
            data.load_state_dict(saved)
            self.assertEqual(data.state_dict(240, 0), saved)
            for at in data.position, self.mount(mounted.make_jsonl, tail=tail, resume=saved).position:
                self.assertEqual((at, len(data.epoch(*at))), ((1, 0), 240))
            for whole in data.epoch(1), data.epoch(0):
                self.assertEqual((len(list(whole.samples())), len(set(whole.ids())), len(list(whole.records()))), (240, 240, 240))
            self.assertRaisesRegex(lsiofs.StateError, "240 records", data.state_dict, 1 << 40)
        data = self.mount(mounted.make_jsonl, batch=64, tail="drop")
        self.assertRaisesRegex(lsiofs.StateError, "240 records", data.state_dict, 256)

    def test_a_state_of_a_growing_dataset_names_its_run(self):
        flags = {"grow": True, "run": os.path.join(self.directory, "run"), "settle": "50ms", "min_new": "1shards", "batch": 4}
        data = self.mount(mounted.make_jsonl, seed=4, **flags)
        want = [s["y"] for s in data.epoch(0, 100)]
        saved = json.loads(json.dumps(data.state_dict(100)))
        with self.assertRaisesRegex(lsiofs.EpochNotReady, r"0 of 1 new shards.*data\.wait\(1\)"):
            data.epoch(1).samples()
        self.assertRaisesRegex(lsiofs.EpochNotReady, "one after the other", data.epoch(2).samples)
        self.assertRaises(lsiofs.EpochNotReady, data.wait, 1, 0)
        self.assertRaises(lsiofs.EpochNotReady, data.state_dict, 4, 1)
        os.rename(self.made("more", mounted.make_jsonl, records=8, shards=1) + "/0.jsonl", os.path.join(self.directory, "make_jsonl", "more.jsonl"))
        data.wait(1, mounted.PATIENCE)
        self.assertEqual((len(data.epoch(0)), len(data.epoch(1))), (240, 248))
        later = data.state_dict(244, 1)
        data.load_state_dict(later)
        self.assertEqual(data.position, (1, 244))
        self.assertRaisesRegex(lsiofs.StateError, "240 records", data.state_dict, 244 + 4 * 65536, 0)
        data.load_state_dict(saved)
        self.assertEqual([s["y"] for s in data.epoch(*data.position)], want)
        data.close()
        for state, place, left in (saved, (0, 100), 140), (later, (1, 244), 4):
            resumed = self.mount(mounted.make_jsonl, resume=state, **flags)
            self.assertEqual((resumed.position, len(resumed.epoch(*place))), (place, left))
            resumed.close()
        flags["run"] += "-of-another"
        self.assertRaisesRegex(lsiofs.StateError, "another run", self.mount(mounted.make_jsonl, seed=4, **flags).load_state_dict, saved)

    def test_a_mount_that_goes_on_by_workers_says_that_it_has_no_one_place(self):
        data = self.mount(mounted.make_jsonl, seed=5)
        saved = {**data.state_dict(0), "done": [{"batch": 1, "consumed": [30, 4]}]}
        resumed = self.mount(mounted.make_jsonl, resume=saved)
        with self.assertRaisesRegex(lsiofs.StateError, "read worker"):
            resumed.position
        self.assertEqual(len(list(resumed.worker(0).samples())) + len(list(resumed.worker(1).samples())), 206)


if __name__ == "__main__":
    unittest.main()
