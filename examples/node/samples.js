#!/usr/bin/env node
// Print the members of a tar stream.
//
//   npm install tar-stream
//   node samples.js MNT/worker-0.tar

const fs = require('fs');
const tar = require('tar-stream');

async function main(path) {
  const extract = fs.createReadStream(path, { highWaterMark: 1 << 20 }).pipe(tar.extract());
  for await (const entry of extract) {
    let size = 0;
    for await (const data of entry) size += data.length;
    if (entry.header.type === 'file') console.log(entry.header.name, size);
  }
}

main(process.argv[2]);
