// Package pipeline opens a dataset and serves its shuffled epochs as files: Open returns a Dataset,
// a Dataset returns sets of streams, and each stream has a size and ReadAt. This comment is the map
// of the code: the words, the paths that a read, an index pass and a checkpoint take, where things
// happen, where new ones are added, and a line for each package.
//
// # Words
//
//	shard      one file of the dataset; with --format files a directory, with Zarr an array, and
//	           with --array the files that are joined
//	record     the smallest unit that is shuffled: a tar sample, a line, a frame, a row, a crop
//	record number  a record's position among all records of the dataset, counted before any split
//	extent     where a record's bytes are: shard, offset, size
//	chunk      a run of consecutive records of a shard, which the order permutes as one
//	entry      a record at which decoding of a shard can start
//	unit       what a split keeps together: a record, a shard, or the records from one entry to the
//	           next
//	part       the records that a split selects; only these are in the order
//	epoch      one pass over the part
//	rank       a record's position in the part, 0 … T-1; T is the number of records of an epoch
//	lane       one of L equal slices of the permuted chunks (L is the number of lanes). Each has a
//	           shuffle buffer of its own: a random record of it is delivered, and the lane's next
//	           record takes the free place
//	group      one of K sets of L/K lanes; the lanes of a group take turns
//	G          the global order: all records of an epoch
//	G′         what is left of G after resumes
//	worker     one reader; the records of worker w are one stream
//	view       G′ as it is assigned to workers
//
// Words of one package are explained in its package comment. Some are used everywhere:
//
//	piece      what is read at once: usually a chunk, as that is what the order permutes
//	fetcher    reads the records of one set of shards, for all readers
//	reader     the part of a fetcher that serves one stream
//	set        the streams of all workers for one view
//	snapshot   the shards that an epoch of a growing dataset has
//	mount      of package pipeline: everything that lives as long as a dataset is open
//
// # How a read is answered
//
//	spec ──► catalog ──► order ──► read ──► stream ──► fs (FUSE) · cat (stdout)
//	         which       which     bytes    records    names, offsets,
//	         records,    record    of a     to bytes   errno
//	         where       is next   record
//	                                │ shards are compressed: read/decode ──► format
//	                                ▼
//	                             storage ──► Retrying ──► local ──► uring
//	                                     ──► diskcache ──► remote ──► s3, web
//	                                     ──► fileset · arrays · crops · union · hardlink
//
// The comment of type scheme in mount.go shows which storage wraps which.
//
// A program reads bytes [off, off+n) of the file of worker w:
//
//  1. fs/node_stream.go receives the request and calls ReadAt of a stream.Handle.
//  2. stream finds the first record k, from the offsets of every 4096th record and the catalog's
//     sizes. The view returns the record numbers from k on.
//  3. read.Reader.Read pins the records' bytes in memory (budget.Records). Bytes that are not in
//     memory are read by one of three strategies. Scan reads pieces whole. Gather reads exactly the
//     next records. Spool decodes each compressed shard once, to a disk. read/choose picks one when
//     the fetcher starts.
//  4. stream answers with slices of the pinned bytes, which are unpinned after the kernel has copied
//     them. Short records, and records in mapped files, are copied first.
//
// The order depends on the catalog, never on the data, so the next records are known before they
// are read: sizes are exact before a byte is read (the catalog has each record's size), a resume
// costs arithmetic only, and reading ahead never guesses. The bytes never depend on timing, memory,
// engine, number of threads or read size.
//
// # How a dataset is indexed
//
//  1. catalog/discover lists the dataset through its storage and detects the format.
//  2. catalog compares each shard with the stored index (size, mtime, inode, ctime), and keeps the
//     entries of unchanged shards.
//  3. The other shards are read, several at a time. format decodes them and cuts them into records;
//     catalog/index packs each record's extent into a few bits.
//  4. Finished shards go to a journal, so an index pass that is killed resumes there.
//  5. At the end the index is sealed: written with checksums, synced, renamed into place and read
//     back. From then on catalog answers from it.
//
// # How a checkpoint is taken and restored
//
// For each worker file, fs counts the bytes that were delivered to the program that reads it from
// the front (fs/marks.go). When the file checkpoint is opened, the streams' layouts turn these
// counts into whole records, and package checkpoint writes them as a document.
//
// A document is restored by writing it to that file, by renaming a file onto it, or by --resume.
// checkpoint parses it and checks it against the dataset and the order (checkpoint/resolve.go),
// order makes the view of what is left (G′; order/view.go) when generation.go sets up the streams,
// and fs replaces the worker files by those of that view (fs/view.go, tree.go). No record is read.
//
// # Where things happen
//
//	who frees a block of memory         its owner, once nothing pins it. Owners: the scanner, of its
//	                                    segments (read/scan/cache.go); the gatherer, of its batches
//	                                    (read/gather/batch.go); package mapped, of its regions
//	                                    (read/mapped/region.go); crops, of its chunks
//	                                    (blockcache/cache.go). read/budget counts the memory of scan
//	                                    and gather; mapped bytes and chunks have limits of their own
//	what is dropped when memory is full read/scan/cache.go: first the oldest segment of which most
//	                                    records were delivered; the few others are copied. Then
//	                                    paused decoders that are not needed soon, or cheap to open
//	                                    again (decode.CloseCheap). Last, an old segment of which
//	                                    readers need the fewest records soon.
//	                                    read/gather/batch.go: batches of the reader that has been
//	                                    idle longest. read/mapped/region.go: regions whose records
//	                                    were all delivered, then the oldest. blockcache: chunks of
//	                                    Zarr arrays that are wanted last
//	a reader waits for a record         read/scan/reader.go and read/gather/reader.go (wait)
//	a failed read is repeated           files: storage/retry.go. Services: storage/remote/serve.go,
//	                                    where history.next decides what to do
//	the disk cache is full mid-epoch    diskcache/room.go: permanent data stays as long as a mount
//	                                    uses its object (diskcache/keeper.go). New data goes into a
//	                                    share that is set aside for it, and stays until readers
//	                                    have passed it. While that share is full, new data is not
//	                                    written. ENOSPC: diskcache/disk.go
//	a decoded shard is kept on disk     read/decode (spool.go) decodes it onto a shelf: a file in the
//	                                    disk cache that survives a remount (diskcache/kept.go,
//	                                    diskcache/shelf.go), or a file without a name
//	                                    (diskcache/nameless.go). A later mount finds it by the
//	                                    shard's version (open in diskcache/kept.go). If all shards
//	                                    are kept, they are read as uncompressed files (fromCache in
//	                                    read/survey.go, diskcache/plain.go)
//	a page of the disk cache is checked at each read (diskcache/following.go). Once its object is
//	                                    complete, it is checked once (diskcache/sealed.go), and by
//	                                    later mounts not even that (diskcache/proof.go)
//	a hint enters a storage             by Hints.Want, of storage/caps.go, which is implemented by
//	                                    diskcache/hints.go, storage/remote/remote.go and
//	                                    storage/crops/future.go; storage/union/hints.go passes it to
//	                                    a source of a mixture. The caller is
//	                                    read/window/lookahead.go, which walks the order ahead of
//	                                    each reader
//	what a storage can do               storage/caps.go: one struct, which a wrapper copies from the
//	                                    storage below and changes
//	a shard was replaced or rewritten   each storage compares the version that was listed (files:
//	                                    storage/local/local.go, after each read; services:
//	                                    storage/remote/answer.go) and returns storage.ErrChanged.
//	                                    read/stats.go (Changes) lists the shard once, for status;
//	                                    fs/errno.go turns the error into EIO
//	a shard was replaced by a rename    if it is open, it is still read: the descriptor is of the old
//	                                    file. With --grow and --hold, storage/hardlink keeps the old
//	                                    files to the end of the epoch
//	damage is skipped or refused        format/scan.go finds it while a shard is indexed. Whether
//	                                    --on-corrupt allows to go on is decided in catalog/pass.go,
//	                                    for growing datasets in catalog/live_pass.go, and for crops
//	                                    in storage/crops/check.go
//	a read is no longer needed          read/scan/load.go and read/gather/run.go mark it, if it has
//	                                    not begun; a storage calls Read.Wanted before it begins one
//	a stream's size                     stream/set.go and stream/sweep.go, from the order and the catalog
//	the text of why a strategy is used  read/choose/choose.go
//	--mix meets the order               mixing.go: order.Mixture draws the source of each record;
//	                                    catalog.Union and storage/union make one dataset of them
//	what plan forecasts                 forecast.go: read/dryrun.go runs the real scanner, gatherer
//	                                    and spool on a storage that returns no data, and counts
//	                                    what they read
//	a growing dataset's next epoch      growing/snapshot/start.go starts it when a program asks for
//	                                    it, not when the old one ends; generations.go opens it, and
//	                                    fs/view.go makes it the current one
//	an error becomes an errno           fs/errno.go, nowhere else. It also names the errnos that nodes
//	                                    return in simple cases. fs/rings answers EIO to a request
//	                                    that it can't decode
//	memory is divided                   within a fetcher: NewLimits in read/choose/sizes.go; among
//	                                    fetchers: read/budget/shared.go. mount.go gives crops half
//	                                    of --memory for decoded chunks (recordMemory), and mixing.go
//	                                    a share to each source. The disk cache's buffers are sized
//	                                    in diskcache.go
//	the strategy is chosen              read/choose/choose.go, from sizes alone; two steps around it,
//	                                    in read/survey.go, look at the disk cache: before,
//	                                    fromCache takes shards that are kept decoded; after,
//	                                    Choose may decode all shards into the cache
//	a dataset's name becomes a storage  mount.go: the table of schemes; storage/remote/target parses
//	                                    URLs
//	a file is taken for a shard         catalog/discover/decide.go; catalog/discover/target.go has
//	                                    the names that are left out
//	goroutines are waited for           in Close of the struct that started them: engine, storage,
//	                                    disk cache, fetcher, layouts, generations, snapshotter; in
//	                                    fs, in Mount.Wait
//	things are closed                   mount.go: in the reverse order of opening, also when a
//	                                    step of opening fails
//
// # Where things are added
//
//	a codec    a package below format that implements format.Codec, and its line in the table of
//	           format/formats/codecs.go (at the end: stored indexes have its number). Its first
//	           bytes are a line of format/foreign.go, next to those of other kinds of files.
//	           formattest runs it: its line in formattest/compressed.go.
//	           Where its speed or memory is not that of an unknown codec: read/survey.go and
//	           read/choose/sizes.go
//	a format   a package below format that implements format.Format, and optional interfaces for
//	           kinds, framing and presentation; and its line in the table of
//	           format/formats/formats.go: name, extensions, what is checked. formattest runs it
//	a scheme   a line in the table of mount.go; a service also needs a package below storage/remote
//	           that implements remote.Source (list, range requests), a case in
//	           storage/remote/target, and one at each place that distinguishes buckets from web
//	           servers (service.go, mount.go, spec/selection.go, tune/probe/open.go). storagetest
//	           runs it
//	a wrapper  a storage.Storage around another one; its method Caps states which capabilities it
//	           passes on, and storagetest.RunWrapper checks that. It is put in where the table of
//	           mount.go opens the storage below. storage.Retrying is an example that
//	           passes everything on
//	a verb     cmd/lsiofs/cmd_NAME.go (small ones share a file), and its name in the list of
//	           cmd/lsiofs/root.go
//	a metric   its field in Status (dataset.go), and its lines in fs/metrics.go
//	a page     cmd/lsiofs/manual/TOPIC.md, and its line in cmd/lsiofs/manual/manual.go
//
// # What lives how long
//
// A dataset has two lifetimes. A mount is opened once. A generation is one set of shards: a dataset
// that grows has one for each snapshot, and generations.go counts who uses it.
//
//	Open ──────────────────────────────────────────────────────────────► Close
//	 │ mount       engine, profile, meter, log, options, --memory          ▲
//	 │             storage, index and spool directories                    │
//	 │               │ lent                                                │
//	 │   ┌───────────▼───────────┐     ┌───────────────────────┐           │
//	 └──►│ generation            │ ··· │ of another snapshot,  ├───────────┘
//	     │ catalog, part, chunks │     │ next to it or after   │
//	     │ reader, source        │     │ it, in the same       │
//	     │ epochs, sets, layouts │     │ memory budget         │
//	     └───────────────────────┘     └───────────────────────┘
//
// Sets, streams and handles belong to the generation that made them. A set whose generation was
// closed answers with stream.ErrRetired; its user requests the set again, which opens the generation.
//
// # Packages
//
//	pipeline                              Open, mounts, generations, epochs, mixtures, forecasts, descriptions
//	pipeline/spec                         the user's configuration: plain data, defaults, validation
//	pipeline/order                        the order of an epoch, workers' sequences, resumes; pure
//	pipeline/order/quality                how well an order mixes shards
//	pipeline/catalog                      the index of a dataset: shards, extents, chunks; LiveIndex
//	pipeline/catalog/discover             which files are shards, and of which format
//	pipeline/catalog/index                the stored index: packing, journal, sealing, look-up
//	pipeline/catalog/index/indextest      invalid stored indexes, for tests
//	pipeline/read                         Reader: decides how a dataset is read, and reads it
//	pipeline/read/options                 what all packages below read are configured with
//	pipeline/read/choose                  scan, gather or spool, and how memory is divided; pure
//	pipeline/read/chunkmap                which records, which piece they are in, where pieces are; pure
//	pipeline/read/window                  the walk over the order ahead of each reader; hints
//	pipeline/read/budget                  memory for records: pins, charges, urgency, shares
//	pipeline/read/scan                    reads pieces whole and keeps them until they are used up
//	pipeline/read/decode                  compressed shards: decoders, and a spool of decoded shards
//	pipeline/read/mapped                  pieces that are read from the page cache by mmap
//	pipeline/read/gather                  reads exactly the records that come next
//	pipeline/read/readtest                datasets, orders and storages for tests of read
//	pipeline/plan                         byte ranges to the reads to issue; pure (not the verb plan)
//	pipeline/blockcache                   a cache of the blocks that are wanted soonest
//	pipeline/diskcache                    objects of a slow storage kept on a local disk
//	pipeline/storage                      the interface of storages, capabilities, profiles; Reader, Retrying
//	pipeline/storage/local                files below a directory
//	pipeline/storage/local/hints          which files may have changed, by inotify
//	pipeline/storage/local/localtest      a storage of real files, for tests
//	pipeline/storage/filesystem           the file system below: whether it answers, fast reads, versions of files
//	pipeline/storage/fileset              directories of files, each read as one archive
//	pipeline/storage/arrays               several array files read as one
//	pipeline/storage/crops                crops of Zarr arrays, computed from chunks
//	pipeline/storage/crops/listing        finds Zarr arrays and their objects
//	pipeline/storage/crops/refs           a reference file or zip presented as a Zarr hierarchy
//	pipeline/storage/crops/refs/kerchunk  parses kerchunk's reference files
//	pipeline/storage/crops/refs/table     where the objects of a hierarchy are
//	pipeline/storage/crops/refs/zipped    parses the directory of a zip file
//	pipeline/storage/union                several storages as one, for mixtures
//	pipeline/storage/hardlink             keeps deleted files readable through hard links
//	pipeline/storage/remote               datasets at services: requests, retries, checks
//	pipeline/storage/remote/s3            buckets of S3 and compatible services
//	pipeline/storage/remote/web           files at web servers
//	pipeline/storage/remote/target        parses names of remote datasets
//	pipeline/storage/remote/faultserver   a web server with faults, for tests
//	pipeline/storage/faulty               injects faults into a storage, for tests
//	pipeline/storage/storagetest          the test suite of storages
//	pipeline/format                       the interfaces of formats and codecs
//	pipeline/format/formats               the table of formats and codecs
//	pipeline/format/tar                   WebDataset samples in tar archives; samples of plain files
//	pipeline/format/lines                 lines of text: jsonl, lines
//	pipeline/format/tfrecord              frames of TFRecord files
//	pipeline/format/npy                   rows of NumPy arrays
//	pipeline/format/fixed                 records of one size
//	pipeline/format/tokens                windows and documents in files of tokens
//	pipeline/format/lc0                   frames of Leela Chess Zero games
//	pipeline/format/zarr                  crops of Zarr arrays
//	pipeline/format/tables                Parquet: rows as records of lines, tar or npy
//	pipeline/format/parquet               columns of Parquet files, decoded to vectors of rows
//	pipeline/format/gzip                  gzip, member by member
//	pipeline/format/inflate               DEFLATE
//	pipeline/format/inflate/inflatebench  measures inflate against another library
//	pipeline/format/zstd                  Zstandard
//	pipeline/format/lz4                   LZ4
//	pipeline/format/encode                writes gzip, zstd and lz4
//	pipeline/format/synthetic             seeded shards of every format, for demos and measurements
//	pipeline/format/formattest            the test suite of formats and codecs
//	pipeline/rows                         rows of columns as JSON, tar samples, arrays, tokens; pure
//	pipeline/zarr                         Zarr documents, chunks, copying of elements; pure
//	pipeline/zarr/codec                   decodes the stored bytes of a chunk
//	pipeline/zarr/blosc                   decodes blosc buffers
//	pipeline/zarr/encode                  writes Zarr arrays, for tests and demos
//	pipeline/stream                       records to byte files with exact sizes
//	pipeline/growing                      which shards the next epoch has; pure
//	pipeline/growing/watch                watches a directory for changes
//	pipeline/growing/snapshot             starts epochs of a directory that changes
//	pipeline/run                          the run directory: which epoch has which shards
//	pipeline/filter                       runs a program over the shards of a dataset
//	pipeline/filter/command               the processes of a filter, and the protocol with them
//	pipeline/filter/ledger                which results of a filter are done
//	pipeline/filter/units                 takes shards apart and assembles results
//	pipeline/meter                        counts working and waiting times by stage
//	pipeline/explain                      turns the counters into a verdict
//	pipeline/verify                       checks a dataset's bytes, and an order's promises
//	pipeline/tune                         measures which reads a storage is fast at
//	pipeline/tune/probe                   looks at a service with single requests
//	pipeline/cgroup                       limits of control groups
//	pipeline/strictjson                   scans JSON strictly, for documents of others
//	pipeline/printable                    makes text safe for terminals
//	checkpoint                            checkpoint documents: parse, check, merge, write
//	fs                                    the mount: a tree of files through FUSE
//	fs/rings                              FUSE requests through io_uring
//	fs/rings/ringstest                    enables FUSE over io_uring in tests
//	fs/kernelbench                        compares ways to talk to the kernel's FUSE
//	uring                                 reads files by io_uring, or pread on threads; calls that may hang; memory
//	uring/uringbench                      compares uring with fio
//	cmd/lsiofs                            the command line: its verbs, and packages of the large ones
//
// # How it is tested
//
//	integration/check   unit tests of all packages, and tests that look at the program from
//	                    outside: mounts read by real programs, faults, kills, streams compared
//	                    with a second implementation of the order. 10 minutes on two cores.
//	.ci/run             the gate of a commit: integration/check with every test that always has the
//	                    same outcome, linters, a release, and the race detector. 20 minutes.
//	integration/night   tests that draw, soak or kill at random, with new seeds; hours.
//
// Each ends with a line for each package and test that failed, or reports that everything passed.
// A test that lacks something on this machine is skipped with the reason, and fails in the gate.
// integration/doc.go has the rules for new tests.
package pipeline
