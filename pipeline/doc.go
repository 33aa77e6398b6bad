// Package pipeline opens a dataset and serves its shuffled epochs as files: Open(spec)
// gives a Dataset, a Dataset gives sets of streams, and each stream has a size and
// ReadAt.
//
// # Glossary
//
// The dataset:
//
//	shard      one file of the dataset; for --format files, one directory
//	record     the smallest thing that is shuffled: a tar sample, a line, a frame
//	record number   a record's place among all records of the dataset, counted before
//	           any split: all stages refer to records by it
//	extent     where a record's bytes are: shard, offset, size
//	member     one gzip member, zstd frame or lz4 frame of a compressed shard
//	entry      a record at which reading of a shard can start
//	chunk      a run of consecutive records of a shard, which the order permutes
//	piece      a run of consecutive records of a shard, which is read at a time
//	kind       what all shards of a format must share (arrays: dtype and row shape);
//	           a short text in the index
//	scheme     what stands before "://" in a dataset's name: it selects the storages
//	           through which the dataset is read
//
// The order:
//
//	epoch      one pass over the dataset
//	part       the records that a split selects; only these are in the order
//	unit       what a split keeps together: a record, a shard, or the records from
//	           one entry to the next
//	rank       a record's place in the part, 0 … T-1; the order computes in ranks and
//	           turns them into record numbers at the end
//	lane       one of L slices of the permuted records, each shuffled on its own
//	reservoir  a lane's shuffle buffer: draw a random record, put the next one in
//	group      lanes that are read together; there are K groups
//	G          the global order: all records of an epoch
//	G′         what is left of G after resumes
//	batch      the number of records that a worker is assigned at a time
//	worker     one reader; the records of worker w are one stream
//	view       G′ as it is assigned to workers
//
// Reading:
//
//	scan       read each piece once, whole, and keep its records until they have
//	           gone out
//	gather     read exactly the records that come next, many at a time
//	spool      decode compressed shards once into a local file and read from that:
//	           for orders whose live records don't fit into memory
//	survey     what a dataset is in pieces and sizes: scan, gather or spool is chosen
//	           from it
//	profile    which reads a storage is fast at: size, concurrency, the gap worth
//	           reading over; a default of its kind, or measured by lsiofs tune
//	layout     the size of each worker's stream, and the offset of every 4096th
//	           record; stored beside the index, and computed one epoch ahead
//	mount      what lives as long as a dataset is open: engine, storage, meter,
//	           memory budget, directories; also what users call a mount
//	generation one set of shards that is served: catalog, orders, fetcher; a mount has
//	           one, or one a snapshot
//	snapshot   the shards that an epoch of a dataset that grows is of
//
// Waiting and errors:
//
//	service    a bucket or a web server: a place of datasets that is no file system
//	cache      what was read of a service, kept on a local disk (package diskcache)
//	fill       what a cache fetches although nobody has read it yet
//	share      the part of a cache for what is kept only until its chunk has gone out
//	remote     (a dataset) stored at a service; (a file) on FUSE or a network file
//	           system: a read may never return
//	stuck      (a read) made by a thread, and waiting for more than a second
//	transient  (an error) likely to pass: the read is repeated
//	fault      an error that readers got, with shard, range and reason; repeated ones
//	           are counted, not logged again each time
//	stage      a step from dataset to reader, to which time is booked: index, order,
//	           storage, decompress, gather, copy, fuse
//	wait       a reader's time in a stage; a reader that waits for another one is
//	           booked under the stage that the other one waits for
//	verdict    one sentence: the stage that readers wait for most, or that lsiofs
//	           waits for them
//
// # How a read is answered
//
//	spec ──► catalog ──► order ──► fetch ──► stream ──► fs (FUSE) · cat (stdout)
//	         what and    which     bytes of   records    names, offsets,
//	         where       next      a record   to bytes   errno
//	                                 │
//	                                 ├─ unpack   (decompress, find records)
//	                                 ├─ plan     (which reads a gather makes)
//	                                 ▼
//	                              storage ──► retry ──► local ──► uring
//	                                                ├─► joined ──► local (--array)
//	                                                └─► folders (--format files)
//	                              storage ──► cached ──► remote ──► s3, web
//	                                             └─► uring (what is on the disk)
//
// The scheme of the dataset's name selects the storage: see open.go.
//
// Three packages are not on this path: meter counts the time of each stage, explain
// turns the counters into a verdict, and printable makes text safe for terminals.
//
// The order depends on the catalog, never on the data, so the next records are known
// before they are read. Hence sizes are exact before a byte is read, a resume costs
// arithmetic only, and reading ahead never guesses.
//
// A read of bytes [off, off+n) of worker w's file takes four steps:
//
//  1. stream finds the first record k, from sampled offsets and the catalog's sizes;
//  2. the view gives the record numbers from k on;
//  3. fetch lends the records' bytes, from memory or by reading the pieces with them;
//  4. stream answers with slices of those bytes; short records are copied together.
//
// The bytes never depend on timing, budget, engine, number of threads or read size.
//
// # What lives how long
//
// A dataset has two lifetimes. A mount is opened once. A generation is one set of
// shards; it can come and go while the mount stays (a dataset that grows has one
// generation a snapshot). Things are closed in the reverse order of opening, also when a
// step of opening fails (opened.go).
//
//	Open ──────────────────────────────────────────────────────────────► Close
//	 │ mount       engine, profile, meter, log, options, --memory          ▲
//	 │             storage, index and spool directories                    │
//	 │               │ lent                                                │
//	 │   ┌───────────▼───────────┐     ┌───────────────────────┐           │
//	 └──►│ generation            │ ··· │ of another snapshot,  ├───────────┘
//	     │ catalog, part, chunks │     │ beside it, or after   │
//	     │ fetcher, source       │     │ it, in the same       │
//	     │ epochs, sets, layouts │     │ memory budget         │
//	     └───────────────────────┘     └───────────────────────┘
//
// A Dataset has both. Sets, streams and handles belong to the generation that made them, and
// must be closed before it. Of a dataset that grows (generations.go) that is seen to by
// counting: a generation stays open while it is the current one, while a file of it is open
// or somebody asks it for anything, and for a while after that. Nothing is counted for each
// read. A set whose generation was closed answers with stream.ErrRetired, and can be had
// again.
//
// # How a dataset is indexed
//
//  1. catalog/discover lists the dataset through storage and detects its format.
//  2. catalog compares each shard with the stored index (size, mtime, inode, ctime), and
//     keeps the entries of unchanged shards.
//  3. The other shards are read on all cores: unpack decodes them and cuts them into
//     records, and catalog/index packs each record's place into a few bits.
//  4. Finished shards go to a journal, so an indexing run that is killed resumes there.
//  5. At the end the index is sealed: written with checksums, synced, renamed into place
//     and read back. From then on catalog answers from it.
//
// # How a checkpoint is taken and restored
//
// For each worker file, fs counts the bytes that were sent to the program that reads the
// file from the front. That count is the file's mark. When the file checkpoint is read,
// the streams' layouts turn the marks into whole records, and package checkpoint writes
// these as a document.
//
// To restore, a document is written to that file or given by --resume. checkpoint parses
// it and checks it against dataset and order; order makes the view of what is left (G′);
// fs replaces the worker files by those of that view. No record is read.
//
// # How it is tested
//
//	integration/check   unit tests of all packages, and tests that look at the program from
//	                    outside: mounts read by real programs, faults, kills, streams compared
//	                    with a second implementation of the order. 10 minutes on two cores.
//	.ci/run             the gate of a commit: integration/check with all that always has the same
//	                    outcome, linters, a release, and the race detector. 20 minutes.
//	integration/night   what draws, soaks or kills at random, with new seeds; hours.
//
// Each ends with a line for each package and test that failed, or says that everything passed.
// A test that lacks something on this machine is skipped with the reason, and fails in the gate.
// integration/doc.go has the rules for new tests.
package pipeline
