// Package pipeline assembles lsiofs: Open(spec) gives a Dataset, a Dataset gives
// sets of streams, and a stream is a file: a size and ReadAt.
//
// # Glossary
//
//	shard      one file of the dataset; of format files one directory
//	record     the smallest thing that is shuffled: a tar sample, a line, a frame
//	extent     where a record's bytes are: shard, offset, size
//	member     one gzip member, zstd or lz4 frame of a compressed shard
//	entry      a record at which reading a shard can start
//	chunk      a run of consecutive records of a shard: what an order permutes
//	piece      a run of consecutive records of a shard: what is read at a time
//	part       the records that a split leaves: the order is of these alone
//	unit       what a split keeps together: a record, a shard, or the stretch
//	           from one entry to the next
//	rank       a record's place among those of the part, 0 … T-1: what an order
//	           counts in, until it gives record numbers
//	lane       one of L slices of the permuted records, with a shuffle of its own
//	reservoir  a lane's buffer: one record drawn out, the next one put in
//	group      lanes that are read together, one of K
//	G          the global order: all records of an epoch
//	G′         what is left of G after resumes
//	view       G′ dealt to workers
//	batch      the records that a worker is dealt at a time
//	worker     one reader of a view; worker w's records are one stream
//	epoch      one pass over the dataset
//	scan       reading each piece once, whole, and keeping what has not gone out
//	gather     reading exactly the records that come next, a batch at a time
//	spool      a local file of compressed shards, decoded: what scan reads from
//	           where memory does not hold what an order needs of them
//	profile    which reads a storage likes: their size, how many at a time, across
//	           which gaps; the default of its kind, or what lsiofs tune measured
//	layout     how many bytes each worker's stream has, and where every 4096th
//	           record of it begins; stored beside the index, and computed
//	           ahead for the epoch behind the one that is read
//	kind       what all shards must have in common, where their format demands it:
//	           dtype and row shape of arrays; a short text in the index
//	service    what has a dataset that lies in no file system: a bucket, a web server
//	remote     of a dataset: it lies at a service; of a file: on FUSE or a network file
//	           system, so that its reads may wait for ever
//	stuck      of a read by a thread that has taken longer than a second
//	transient  of an error of storage that is likely to pass: the read is made again
//	fault      an error that readers got, with its shard, range and reason: however
//	           often it happens, it is one line in the log, and a count
//	stage      a part of the way from a dataset to its readers, by which their time
//	           is counted: index, order, storage, decompress, gather, copy, fuse
//	wait       a reader's time in a stage; of one who waits for somebody who waits,
//	           what that one waits for
//	mount      what lives as long as a dataset is open: engine, storage, meter, memory
//	           budget, directories; also what a user calls so
//	generation one set of shards as it is served: catalog, orders, fetcher; a mount has
//	           one today
//	scheme     what stands before "://" of a dataset's name: it decides which storages
//	           the dataset is read through
//	verdict    what readers wait for most, or that lsiofs waits for them, in words
//	record number   a record's place in dataset order, of all records whatever a
//	           split leaves of them: the reference that all stages hand around
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
//	                              storage ──► remote ──► s3, web
//
// Which storages those are follows from the scheme of the dataset's name: open.go.
//
// On the side: meter counts where the time of all of these goes, and explain says
// what that means; printable is for what is shown on terminals.
//
// The order depends on the catalog, never on the data, so what comes next is
// known before it is read: sizes are exact before a byte is read, a resume costs
// arithmetic, and what is read ahead is what will be wanted.
//
// A read of bytes [off, off+n) of worker w's file goes so: stream finds the
// first record k from sampled offsets and the sizes in the catalog; view gives
// the record numbers from k on; fetch lends their bytes, from memory or by
// reading the pieces that hold them; stream answers with slices of those bytes,
// short records copied together.
//
// Bytes never depend on timing, budget, engine, number of threads or size of
// reads.
//
// # What lives how long
//
// A dataset has two lifetimes. What a mount has is opened once; a generation is one
// set of shards, and can come and go while the mount stays (a dataset that grows has
// one a snapshot). What is opened is closed in the opposite order, also where a step
// fails on the way (opened.go).
//
//	Open ──────────────────────────────────────────────────────────────► Close
//	 │ mount       engine, profile, meter, log, options, --memory          ▲
//	 │             storage, index and spool directories                    │
//	 │               │ lent                                                │
//	 │   ┌───────────▼───────────┐     ┌───────────────────────┐           │
//	 └──►│ generation            │ ··· │ later: another one    ├───────────┘
//	     │ catalog, part, chunks │     │ beside it, or after   │
//	     │ fetcher, source       │     │ it, in the same       │
//	     │ epochs, sets, layouts │     │ memory budget         │
//	     └───────────────────────┘     └───────────────────────┘
//
// Dataset is both: its methods ask the generation that is current. Sets, streams and
// handles belong to the generation that they come from, and end before it.
//
// # How a dataset is indexed
//
// catalog/discover lists the dataset through storage and finds out its format. catalog
// compares each shard with the stored index (size, mtime, inode, ctime) and keeps what
// is the same. The other shards are read on all cores: unpack decodes them and cuts
// them into records, and catalog/index packs the places of these into a few bits each.
// Finished shards go to a journal, so that an index pass that is killed goes on
// where it was. At the end the index is sealed: written with checksums, synced,
// renamed into its place, and read back. catalog answers from it.
//
// # How a checkpoint is taken and restored
//
// fs counts, for each worker file, the bytes that were sent to the program that
// reads it from the front (its mark). A read of the file checkpoint turns the marks
// into whole records by the layouts of the streams, and package checkpoint writes
// them as a document. A document that is written to that file, or given by
// --resume, goes the other way: checkpoint parses it and holds it against dataset
// and order, order makes the view of what is left (G′), and fs shows the files of
// that view in place of the old ones. No record is read for that.
package pipeline
