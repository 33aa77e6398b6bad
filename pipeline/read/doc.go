// Package read turns a sequence of record numbers into the bytes of these records, in the same
// order, within one memory budget. It knows nothing about what the bytes mean.
//
// It decides how a dataset is read, and combines the packages below it, which do the reading. This
// package itself is the interface for callers: NewSurvey, Choose, Forecast; NewFetcher, Open, Read,
// Start, Stats, Close. A Survey costs nothing but tables; a Fetcher has the memory and the disk.
//
// # Packages
//
// Each package below has a contract and a manual of its own:
//
//	options   what all of them are configured with: settings, what is read, and how
//	choose    how shards are read, and how memory is divided, from sizes alone; pure
//	chunkmap  what is read: sequences of records, which piece a record is in, where pieces are; pure
//	scan      reads whole pieces, and keeps their records until they are delivered
//	  window    what each reader needs next, piece by piece
//	  decode    compressed shards: decoders, and a spool of shards that are decoded to a disk
//	  mapped    pieces of files that are entirely in the page cache
//	gather    reads exactly the records that come next
//	budget    memory: pinned records, what is charged to it, which reads may get more
//	readtest  datasets, orders and storages for the tests of these packages
//
// The three indented packages serve scan; gather also uses window, if the storage takes
// hints.
//
// # How they fit
//
//	catalog, part, settings
//	       │
//	       ▼
//	choose.Survey ──► Choose ──┬─ scan, spool ──► scan.Scanner ──► scan.Reader ────┐
//	                           └─ gather ───────► gather.Gatherer ► gather.Reader ─┤
//	                                                                               ▼
//	                                                 Reader.Read ────────────► budget.Records
//
// There are three strategies, and two packages that carry them out. Scan reads whole pieces of
// shards. Spool is a scan that decodes each compressed shard once to a disk (the disk cache, or a
// file). It is for orders that jump about in shards in which decoding can start at few places
// (members or frames, wherever records begin). Gather is for datasets without compressed shards
// whose shuffle holds more than fits into memory, so that a scan would read pieces again and again.
// Compressed shards that are already in the disk cache, all of them and decoded, are read as
// uncompressed ones (Survey.AsRead).
//
// A Fetcher has either a scanner or a gatherer, for all its life. Neither imports the other, nor
// this package: both get the same Options, and report errors by Options.Note. They stay two
// packages because they share nothing but what is listed above: a scan keeps pieces of shards for
// all readers, a gatherer keeps batches of one reader each. Forecasts need a Survey alone, and are
// available for all strategies, whichever was chosen.
//
// # Services and disk caches
//
// A service answers after tens of milliseconds and charges for each request, so a chunk of the
// order should be one request, made well before it is needed. If a storage takes hints
// (storage.Hints), each reader has a Lookahead (package window) that goes through the order ahead
// of it and announces the chunks to come, soonest first, with how much of the stream comes before
// each. It looks ahead by Options.LookaheadBytes, or by what the reader reads in two seconds. The
// strategies for uncompressed shards are then (choose.Sizes.Choose):
//
//	the shuffle's waiting records fit in       scan: chunks are read to memory, up to a
//	memory                                     quarter of it ahead. One request per chunk
//	a disk cache (HintUse.Keeps) has room      gather: chunks are planned, fetched to the
//	for the chunks that are begun and not      cache, and records are read from there. One
//	finished                                   request per chunk
//	neither                                    gather: up to one request per record, with a
//	                                           warning that names the remedies
//
// Needs returns the requests and bytes of an epoch, and the memory and the cache that it takes.
// Compressed shards are read in larger blocks than from a disk, and are not planned: decoders read
// them from front to back. None of this changes a byte of the output.
//
// If only a part of the records is ever asked for (Options.Part), both strategies leave out the
// others as far as they can. In an order with a sample (pipeline/order/SELECTION.md) each epoch has
// another part, its phase, which is passed to OpenPhase. Reads then cover the records of all phases
// that have open readers, and nothing else.
//
// # Page cache
//
// A piece of an uncompressed shard that is entirely in the page cache is not read: it is mapped,
// and its records are returned from the mapping. See package mapped. Such bytes may change while
// they are copied, so callers have to use budget.Records.Mapped, Leased, Check and Fault.
//
// # Memory
//
// Options.MemoryBytes is the budget for all readers together. The tables per piece are subtracted
// first (choose.Survey). The rest is for the scanner or the gatherer, whose manual says what may
// exceed it: a record that a reader waits for always gets memory, so nothing deadlocks.
//
// Several fetchers may share one budget (Options.Memory): see budget.Shared. Allow sets how much
// each may hold, and a fetcher that is short of memory asks for more (Options.Ask).
// For a fetcher that is alone, this costs one look at a flag whenever memory is used up.
//
// # Locks
//
// Locks are taken in this order, never the other way:
//
//	scan.Reader.mu ───► scan.Scanner.mu ──┬─► decode.Set or decode.Spool
//	                                      ├─► mapped.Maps
//	                                      └─► Fetcher.mu
//	gather.Reader.mu ─► gather.Gatherer ────► Fetcher.mu
//
// A fetcher that asks for more of a shared budget uses TryLock on budget.Shared's lock, and waits
// for no lock that another fetcher may hold while it asks. So it may ask with any of the locks
// above held.
//
// Fetcher.mu guards the list of failures, and whether the fetcher is closed. Returning records that are in memory takes no lock
// but the reader's own.
package read
