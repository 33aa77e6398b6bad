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
            self.assertRaisesRegex(lsiofs.Error, "not one of the 2 classes", classes, {"__key__": key})

    def test_classes_that_a_split_leaves_without_records_are_counted_as_image_folder_counts_them(self):
        data = self.mount(mounted.make_images, format="files", split="0..0.25", seed=2)
        self.assertLess(len({bytes(s["ppm"])[:3] for s in data.epoch(0)}), 3)
        self.assertEqual(list(data.classes()), ["cat", "dog", "emu"])

    def test_the_mount_says_what_the_classes_are_where_the_images_can_not_be_listed(self):
        data = self.mount(mounted.make_images, format="files")
        os.rename(os.path.join(self.directory, "make_images"), os.path.join(self.directory, "elsewhere"))
        self.assertEqual(list(data.classes()), ["cat", "dog", "emu"])
        del data.info["directories"]  # as if there were too many
        self.assertRaisesRegex(lsiofs.Error, "name them", data.classes)

    def test_a_name_that_is_no_utf8_is_a_class(self):
        info = {"directories": [{"path": "."}, {"path": "b/x"}, {"path": "a\ufffd/y", "path_hex": "61ff2f79"}, {"path": "b"}]}
        listed = lsiofs.labels.listed(info)
        self.assertEqual(listed, ["a\udcff", "b"])
        self.assertEqual(lsiofs.Classes(listed or ())({"__key__": b"a\xff/y/7"}), 0)


if __name__ == "__main__":
    unittest.main()
