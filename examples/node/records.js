#!/usr/bin/env node
// Read a stream record by record, in large reads, by its .offsets.
//
//   node records.js MNT/worker-0.tfrecord MNT/worker-0.offsets
//
// Prints the number of records, their bytes, and the sum of these.

const fs = require('fs');

const WINDOW = 4 << 20; // bytes per read; one record may be larger

function* records(path, offsetsPath) {
  const b = fs.readFileSync(offsetsPath);
  const offsets = new BigUint64Array(b.buffer.slice(b.byteOffset, b.byteOffset + b.length));
  const size = (begin, end) => Number(offsets[end] - offsets[begin]);
  const fd = fs.openSync(path);
  try {
    for (let at = 0, end; at < offsets.length - 1; at = end) {
      for (end = at + 1; end < offsets.length - 1 && size(at, end + 1) <= WINDOW; end++);
      const window = Buffer.allocUnsafeSlow(size(at, end));
      for (let n = 0, got; n < window.length; n += got) {
        got = fs.readSync(fd, window, n, window.length - n, offsets[at] + BigInt(n));
        if (got === 0) throw new Error(`${path} ends within a record`);
      }
      for (let i = at; i < end; i++) yield window.subarray(size(at, i), size(at, i + 1)); // a view
    }
  } finally {
    fs.closeSync(fd);
  }
}

let count = 0, bytes = 0, sum = 0;
for (const record of records(process.argv[2], process.argv[3])) {
  count++;
  bytes += record.length;
  for (let i = 0; i < record.length; i++) sum += record[i];
}
console.log(count, bytes, sum);
