// Package mapped returns records directly from the page cache, without reading them: it maps pieces
// of files, and tells when their bytes may be touched, and whether what was copied from them is
// correct.
//
// # Purpose
//
// If a file's bytes are in the page cache, they need not be read into other memory. The file is
// mapped into the address space, and its records are returned from there. That costs none of the
// budget except the tables of the records. At most Config.LimitBytes are mapped at a time. While
// that is enough, everything stays mapped for the next epoch; otherwise pieces whose records were
// all delivered are unmapped first, then the oldest. What can't be mapped is read.
//
//	shard    a file, and its mapping: all of it is in the address space, none of it
//	         may be touched yet
//	piece    a range of a shard, with some records: its owner numbers it
//	region   a piece that has been populated: touching it does not fault
//	table    where the records of a piece are; it belongs to the owner, and readers
//	         find a region through it
//
// # Requesting a piece
//
// The owner calls Request, then Do for the work that this leaves, and is called back, once for each
// accepted request:
//
//	Request ─┬─► false: read it
//	         └─► true, and then Do
//	              ├─ its shard is mapped ────────────┬─► populate ─┬─ all cached ────► Owner.Mapped
//	              └─ else the storage opens it ─┬────┘             └─ not, or no room ─┐
//	                                            └─ that takes long, or can't be ───────┴─► Owner.Refused
//
// If Cancel returns true there is no callback any more. Request and Cancel don't wait. Do waits for
// system calls on open files, but neither for data nor for opening files: a shard is opened and
// mapped by its storage. Pieces that are requested meanwhile wait for Config.Patience, and are
// refused if opening takes longer. So a file that hangs while it is opened delays nothing, not even
// reads of that shard, if it is already open for reads.
//
// # Touching it
//
// A cold page is never touched, because a goroutine that faults holds a processor. When the kernel
// has evicted pages from the page cache, each region is checked before its records are returned
// again (Region.PinResident), and one that is not entirely cached is forgotten, so that it is read.
//
// Truncating a file removes its pages, or shows zeros, and writing to it changes them. So a caller
// that copies bytes has to call Lent.Leased before, copy under storage.Faulted, and call Lent.Check, or
// after a fault Lent.Fault, before it passes the copy on. While the files have leases nothing
// writes to them, and they need not be checked. Bytes are never passed on in place.
//
// A file that has changed is never mapped again (its reads return ErrChanged, too). A shard whose
// mapping is of a copy that is gone (ErrReadAgain) may be mapped again, a few times, if there is
// another copy; the stale mapping goes with its last pin.
//
// # Unmapping
//
// Regions are unmapped to make room for others, in this order:
//
// 1. Its pins are killed: a reader that finds it from now on can't pin it, and touches nothing.
// 2. Owner.Forget: when it returns, no table refers to it any more.
// 3. Its pages leave the address space.
//
// So between 1 and 2 a reader may find the table of a region that is about to go. Pins.Pin, or
// Region.PinResident, then returns false, and the reader has to act as if it had not found it.
// Pinned regions are not unmapped.
//
// # Locks
//
// Maps has a lock of its own. An owner may hold its lock when it calls Request, Cancel, Evictions
// and Stats, and when it pins and unpins (Region.Pins). All other methods call the owner, which
// takes its own lock then: they must be called without it, and Maps calls the owner without holding
// its own lock. So if both are held, the owner's lock was taken first.
package mapped
