// Package read turns references in order into record bytes in the same order,
// inside one memory budget. It knows nothing of what the bytes mean.
//
// It decides how a dataset is read, and puts together the rooms that do it. What is left
// here is the face that callers see: New, Open, Read, Choose, Forecast, Start, Stats, Close.
//
// # Rooms
//
// Its parts are packages below it, each with a contract and a manual of its own:
//
//	survey    what a dataset is, in pieces and sizes; pure
//	strategy  how shards are read, and how memory is divided, from sizes alone; pure
//	piece     which piece a record is of, where pieces lie, and what they are made of; pure
//	scan      readers that read pieces whole, and keep what has not gone out
//	  ahead     what each reader comes to next, piece by piece
//	  decode    decoders of compressed shards: who has a core, and memory
//	  spool     shards that were decoded into a file: who is let in, and what is lost
//	  mapped    pieces of files that are all in the page cache
//	gather    readers that read exactly the records that come next
//	loan      what readers share with those who call them
//	budget    memory: what is charged to it, who may have more, and what several share
//	fetchtest datasets, orders and storages of their tests
//
// The four that are indented are below fetch, too, and serve scan; ahead serves gather as well,
// where storage is told what comes.
//
// # How they fit
//
//	catalog, part, settings
//	       │
//	       ▼
//	     survey ──► choose.Choose ──┬─ scan, spool ──► scan.Scanner ──► scan.Reader ───┐
//	                                  └─ gather ───────► gather.Gatherer ► gather.Reader ┤
//	                                                                                     ▼
//	                                                     Reader.Read ──────────────► pinned.Records
//
// There are three strategies and two rooms. Scan reads pieces of shards whole. Spool is
// a scan whose compressed shards go through a file: where decoding can start at few places
// (members or frames, wherever records begin), and the order jumps about, each shard is
// decoded once into it. Gather is for datasets without compressed shards, where memory does
// not hold what waits in the shuffle, so that pieces would be read again and again.
//
// A fetcher has one room for all its life. Neither room knows of the other, nor of
// fetch: each gets what it needs in its Config, and tells what went wrong by Config.Note.
// Forecasts of both can be had whatever was chosen: they need the configuration alone.
//
// # Services and disk caches
//
// A service answers after tens of milliseconds and takes money for each request, so there a
// chunk of the order is to be one request, made well before it is needed. Where a storage is a
// storage.Planner, each reader has a walker (package window) that goes through the order ahead
// of it and says which chunks come, nearest first, and how much of the stream comes before
// each. How far it looks is Config.LookaheadBytes, or what the reader reads in two seconds.
// Strategies for shards that are not compressed are then (choose.Sizes.Choose):
//
//	memory holds what waits in the shuffle     scan: chunks are read to memory, up to a
//	                                           quarter of it ahead. A request a chunk
//	a disk cache (storage.Keeper) has room     gather: chunks are planned, brought to the
//	for the chunks that are begun and not      cache, and records are read from there. A
//	finished                                   request a chunk
//	neither                                    gather: up to a request a record, with a
//	                                           warning that names what would do
//
// Needs tells requests and bytes of an epoch, and the memory and the cache that it takes.
// Compressed shards are read in larger blocks than from a disk, and are not planned:
// decoders go through them from front to back. None of it changes a byte.
//
// Where only a part of the records is ever asked for (Config.Part), both rooms leave out the
// others as far as they can. Of a sample (pipeline/order/SELECTION.md) each epoch has another
// part, its phase, which a reader brings (OpenPhase): what is read then has the records of all phases that
// have readers, and nothing else.
//
// # Page cache
//
// A piece of an uncompressed shard that is all in the page cache is not read: it is
// mapped, and its records go out from there. See package mapped. Such bytes may change
// under those who copy them, who see to Loan.Mapped, Leased, Check and Fault.
//
// # Memory
//
// Config.MemoryBytes is one number for all readers. Tables of what there is for each piece
// come off first (survey); the rest is the room's, and its manual says what may exceed
// it: what somebody waits for always gets memory, so that nothing deadlocks.
//
// Several fetchers may have one budget together (Config.Memory): see budget.Shared. Each is
// told how much it may hold (Allow), and asks for more where it finds none (Config.Ask of its
// room). While it is alone all of this costs one look at a flag, where memory is used up.
//
// # Locks
//
// Locks are taken in this order, never the other way:
//
//	scan.Reader.mu ───► scan.Scanner.mu ──┬─► decode.Set ──┐
//	                                      ├─► spool.Spool ─┴─► (budget: atomic, without a lock)
//	                                      ├─► mapped.Maps
//	                                      └─► Fetcher.mu
//	gather.Reader.mu ─► gather.Gatherer ────► Fetcher.mu
//
// Who asks for more memory of several fetchers tries budget.Shared's lock, and then those of
// the others, but waits for none that one of them holds while it asks; so this can be done
// with any of the locks above held.
//
// Fetcher.mu is for the list of failures alone. Lending what is in memory takes none but
// a reader's own.
package read
