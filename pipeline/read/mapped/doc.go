// Package mapped gives records from where they lie in the page cache, without
// reading them: it maps pieces of files, says when their bytes may be touched, and
// whether what was copied from them can be believed.
//
// # What it is for
//
// A file whose bytes are in the page cache need not be read into other memory. It
// is mapped into the address space, and its records go out from there. That costs
// none of the budget but the tables of the records. At most Config.LimitBytes are
// mapped at a time. While that is enough all stays mapped for the next epoch; else
// what has all gone out is unmapped first, then the oldest. What can't be mapped is
// read.
//
//	shard    a file, and its mapping: all of it in the address space, nothing of it
//	         to be touched yet
//	piece    a range of a shard, with some records: its owner gives it a number
//	region   a piece that has been populated: touching it is no fault
//	table    where the records of a piece lie; it is the owner's, and readers find
//	         a region by it
//
// # Asking for a piece
//
// The owner asks with Request, does with Do what that left to be done, and is called
// back, once for each request that was taken:
//
//	Request ─┬─► no: read it
//	         └─► yes, and then Do
//	              ├─ its shard is mapped ────────────┬─► populate ─┬─ all cached ────► Owner.Mapped
//	              └─ else the storage opens it ─┬────┘             └─ not, or no room ─┐
//	                                            └─ that takes long, or can't be ───────┴─► Owner.Refused
//
// Where Cancel says yes there is no answer any more. Request and Cancel wait for
// nothing. Do waits for system calls on files that are open, neither for data nor for
// openings: a shard is opened and mapped by its storage. Its pieces that are wanted
// meanwhile wait for Config.Patience, and are refused if it takes longer. An opening
// that hangs so holds up nobody, not even those who want the shard, if it is open for
// reads.
//
// # Touching it
//
// A cold page is never touched: a goroutine that faults holds a processor. When the
// kernel has taken pages from the page cache, each region is looked at before its
// records are lent again (Region.PinResident), and one that is not all there is
// forgotten, so that it is read.
//
// A file that is truncated takes its pages away, or shows zeros, and one that is
// written to shows what was written. So who copies asks Lent.Leased before, copies
// under Faulted, and asks Lent.Check, or after a fault Lent.Fault, before the copy is
// given on. While the files have leases nobody writes, and they need not be looked
// at. Bytes are never given on as they lie.
//
// A file that has changed is never mapped again (ErrChanged is what its reads give,
// too). A shard whose mapping is of a copy that has gone (ErrReadAgain) may be mapped anew, some
// times, when there is another copy; the stale mapping goes with its last pin.
//
// # Letting go of it
//
// Regions are unmapped to make room for others, in this order:
//
//  1. Its pins are killed: who finds it from now on can't pin it, and touches nothing.
//  2. Owner.Forget: when that returns no table leads to it any more.
//  3. Its pages leave the address space.
//
// So between 1 and 2 a reader may find the table of a region that is about to go.
// Pins.Pin, or Region.PinResident, then says no, which is to be taken as if it had
// not found it. Pinned regions are not unmapped.
//
// # Locks
//
// Maps has a lock of its own. An owner may hold its lock when it calls Request,
// Cancel, Evictions and Stats, and when it pins and unpins (Region.Pins). All else
// calls the owner, which takes its own lock then: it is to be called without, and
// Maps calls the owner without holding its lock. So the owner's lock always comes
// first, if both are held.
package mapped
