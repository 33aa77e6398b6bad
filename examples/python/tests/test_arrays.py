"""Records as numpy arrays."""

import os
import unittest

import lsiofs

from . import mounted

try:
    import numpy
except ImportError:
    numpy = None


@unittest.skipIf(numpy is None, "numpy is not installed")
class Arrays(mounted.Case):
    def test_fixed_records_come_in_batches_of_any_number(self):
        data = self.mount(mounted.make_fixed, format="fixed", record_bytes=8)
        want = numpy.fromfile(data.epoch(0).stream().path, ("<u2", (4,)))
        self.assertEqual(want.shape, (300, 4))
        for window in 1, 1000, 1 << 22:
            with mounted.windows_of(window):
                for records in 1, 7, 300, 1000:
                    batches = list(data.epoch(0).arrays(records, ("<u2", (4,))))
                    self.assertEqual({len(b) for b in batches[:-1]}, {records} if len(batches) > 1 else set())
                    self.assertTrue((numpy.concatenate(batches) == want).all())
                stream = lsiofs.Stream(data.epoch(0).stream().path, 5)
                self.assertTrue((numpy.concatenate(list(stream.arrays(7, ("<u2", (4,))))) == want[5:]).all())
        self.assertEqual([bytes(s) for s in data.epoch(0)], [w.tobytes() for w in want])
        self.assertRaisesRegex(TypeError, "dtype", lambda: data.epoch(0).arrays(7).__next__())
        self.assertRaises(ValueError, data.epoch(0).arrays, 0, "<u8")

    def test_npy_knows_its_rows(self):
        def make_npy(root):
            for i, rows in enumerate((40, 1, 61)):
                numpy.save(os.path.join(root, f"{i}.npy"), (numpy.arange(rows * 15) + 10000 * i).astype(">i4").reshape(rows, 3, 5))

        data = self.mount(make_npy)
        want = numpy.load(data.epoch(0).stream().path)
        with mounted.windows_of(500):
            batches = list(data.epoch(0).arrays(8))
            self.assertEqual((batches[0].dtype, batches[0].shape, len(batches)), (numpy.dtype(">i4"), (8, 3, 5), 13))
            self.assertTrue((numpy.concatenate(batches) == want).all())
            self.assertTrue((numpy.stack(list(data.epoch(0))) == want).all())


if __name__ == "__main__":
    unittest.main()
