"""Labels that are directories."""

import os
import unittest

import lsiofs

from . import mounted


class Labels(mounted.Case):
    def test_numbers_are_those_of_sorted_names(self):
        data = self.mount(mounted.make_images, format="files", seed=2)
        os.mkdir(os.path.join(self.directory, "make_images", ".hidden"))
        classes = data.classes()
        self.assertEqual((list(classes), len(classes), classes[1], classes[-1]), (["cat", "dog", "emu"], 3, "dog", "emu"))
        seen = []
        for sample in data.epoch(0):
            name = bytes(sample["ppm"])[:3].decode()
            self.assertEqual(classes(sample), sorted(["dog", "cat", "emu"]).index(name))
            seen.append(name)
        self.assertEqual(sorted(seen), ["cat"] * 5 + ["dog"] * 5 + ["emu"] * 5)

    def test_names_may_be_given_and_a_sample_of_none_of_them_is_an_error(self):
        data = self.mount(mounted.make_images, format="files")
        classes = data.classes(["dog", "cat"])
        self.assertEqual(repr(classes), "Classes(['cat', 'dog'])")
        self.assertEqual(classes({"__key__": b"./dog/17"}), 1)
        for key in b"emu/more/1", b"1":
            self.assertRaisesRegex(lsiofs.Error, "none of the 2 classes", classes, {"__key__": key})
        os.rename(os.path.join(self.directory, "make_images"), os.path.join(self.directory, "elsewhere"))
        self.assertRaisesRegex(lsiofs.Error, "name them", data.classes)


if __name__ == "__main__":
    unittest.main()
