package storage

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/uring"
)

// Caps are what a storage can do besides the methods of Storage. A field that is nil is a
// capability that the storage does not have. The functions may be called concurrently, until the
// storage is closed.
//
// A wrapper starts with the Caps of the storage that it wraps, and replaces what it does in another
// way: it must not hand out a way around itself. OnlySubmit removes those ways for wrappers that
// alter, count or delay reads. package storagetest checks what each wrapper passes on (RunWrapper).
type Caps struct {
	// StatStable is Stat for an object that is going to be read. Like List, it waits until a later
	// change would show in the version. Without it, Stat's versions always show later changes.
	StatStable func(ctx context.Context, path string) (Object, error)
	// Omitted returns what the last List left out on its own, besides what match rejected: at most
	// MaxOmitted names that begin with a dot, links that lead back to a directory above them, keys
	// that are not paths, and anything that is neither a file nor a directory. A directory's path
	// ends in '/'. The caller must not change the slice.
	Omitted func() []Omission

	// Parts returns the paths of what a listed object is cut from, for storages whose objects are
	// cut from other objects below the same root: files, directories, or names within a file (the
	// file's path followed by the name). Objects with the same parts have the same records.
	Parts func(path string) []string
	// Join makes an object from one file for each name, for storages whose objects consist of
	// several files each. List has listed the files. An error names the file that can't be part of
	// an object.
	Join func(ctx context.Context, names []string, files []Object) (Object, error)
	// Outline opens an object with zeros in place of the files' contents, for storages whose objects
	// are files with headers around them: an index pass needs only the headers. Its ReadAt does no
	// I/O, must not be called concurrently, and may be used until the storage is closed or lists
	// again. An object that is no longer the one that was listed gives ErrChanged.
	Outline func(o Object) (io.ReaderAt, error)
	// Check verifies everything that reads of an object rely on besides the data, for storages whose
	// objects are computed from files with a structure of their own, which an index pass does not
	// see: that files have the necessary sizes, and that indexes in them are plausible. An error
	// names the damaged files, or some of them if there are many.
	Check    func(ctx context.Context, o Object) error
	Verifier Verifier

	// Mapper maps objects that are in the page cache.
	Mapper Mapper
	// OpenResident opens an object whose parts may be in memory. If the object is no longer the one
	// that was listed, the error is ErrChanged. If objects must not be read from memory, the
	// Resident is nil.
	OpenResident func(o Object) (Resident, error)
	// OpenSequential returns the bytes of an object from off to its end, followed by io.EOF, with
	// less than one request per part. A stream that breaks is resumed where it broke. Errors are
	// *Error, or the error of ctx, which must last as long as the reader. They wrap ErrChanged if the
	// object is no longer the one that was listed. The reader is for one goroutine at a time, except
	// for Close, which ends a pending Read. Callers bound how many streams are open.
	OpenSequential func(ctx context.Context, o Object, off int64) (io.ReadCloser, error)
	// Uncached opens the same objects once more, for reads that bypass the page cache. If objects
	// are known only from listings, the new storage has those listed so far. The caller owns the
	// result, and closes it before this storage. The result is nil if the storage below can't bypass
	// the page cache. If the user has turned direct reads off, it reads through the page cache.
	Uncached func() (Storage, error)
	// Fill is Submit for reads with the lowest priority, which no reader waits for: they come after
	// everything that was submitted, and after everything that was announced to Hints.
	Fill func(reads []*Read)

	// Hints takes announcements of what will be read.
	Hints Hints

	// Status describes the storage's reads the way the engine's Status would, for storages that
	// don't read through the engine that they were created with.
	Status func() uring.Status
	// AdjustProfile returns which reads the storage is fast at, for the profile of the file system
	// or service below. It is pure.
	AdjustProfile func(below Profile) Profile
	// HeldBytes returns about how much memory the storage holds to describe its objects, for
	// storages that hold more than the caller can compute.
	HeldBytes func() int64
}

// OnlySubmit returns c without the capabilities that read objects other than by Submit. Hints, and
// what describes objects, remain.
func (c Caps) OnlySubmit() Caps {
	c.Verifier, c.Mapper, c.OpenResident, c.OpenSequential, c.Uncached, c.Fill = nil, nil, nil, nil, nil, nil
	return c
}

// StatStable describes an object that is going to be read: it is Caps.StatStable of s, or Stat.
func StatStable(ctx context.Context, s Storage, path string) (Object, error) {
	if stat := s.Caps().StatStable; stat != nil {
		return stat(ctx, path)
	}
	return s.Stat(ctx, path)
}

// OmittedBy returns what the last List of a storage left out on its own.
func OmittedBy(s Storage) []Omission {
	if omitted := s.Caps().Omitted; omitted != nil {
		return omitted()
	}
	return nil
}

// Hints is for storages that read better if they know what comes next: a request to a service takes
// tens of milliseconds, reads that are needed later can wait for more urgent ones, and what is
// needed again can be kept. Hints change when data is fetched and what is kept, never what reads
// return. The methods return at once. They may be called concurrently, but not for the same reader.
//
// A reader is a number that no other reader of the process has (NewReaderID). It announces the
// blocks that it is going to read, soonest first, some at a time:
//
//	blocks of the reader  ├── passed ──┤├─── Want: announced ───┤  not announced yet
//	                              Passed ──►        next Want ──►
type Hints interface {
	// Want announces what a reader is going to read, soonest first. It replaces what the reader
	// announced before, except for blocks that the storage has begun to fetch: these are kept until
	// Passed or Drop. So each call repeats the blocks that the reader has not come to, and adds
	// those after them; a storage that notes only some is offered the others again. A reader that
	// goes elsewhere calls Drop first. The caller may reuse the slice.
	Want(reader uint64, blocks []Block)
	// Passed reports that a reader does not need these blocks of its Wants any more, because it has
	// read them. If HintUse.Exact is set, it is about to submit their reads, in the order in which
	// it announced them. The caller may reuse the slice.
	Passed(reader uint64, blocks []Block)
	// Drop ends a reader: it has passed everything that it announced, or does not want it any more.
	Drop(reader uint64)
	// Use returns what the storage does with hints.
	Use() HintUse
	// SetShare sets how much of HintUse.RoomBytes is set aside for chunks that running orders have
	// open, which are those between their first and their last record. The rest is for data that
	// stays permanently. Storages that keep no blocks ignore it.
	SetShare(bytes int64)
}

// HintUse is what a storage does with hints, which determines what blocks are. All fields but
// RoomBytes are constant.
//
// By default, a storage orders its reads by when they are needed, and treats reads of blocks that
// were not announced as urgent.
type HintUse struct {
	// Keeps means that the storage stores blocks on a disk. What is announced is fetched before it
	// is read, once, no matter which part of it is read first, and stays at least until it is
	// passed, as long as there is room.
	Keeps bool
	// RoomBytes is how many bytes of announced blocks the storage may keep at a time.
	RoomBytes int64

	// Exact means that the storage computes reads from larger pieces, and keeps pieces in memory
	// that will be needed again (package crops). Blocks are exactly the ranges that will be
	// submitted, in this order.
	Exact bool
}

// Block is a range of an object that is going to be read: a chunk, a part of one, or a record.
// Object is in the version that was listed. Epoch is as in Read.
type Block struct {
	Object                 Object
	OffsetBytes, SizeBytes int64
	Epoch                  uint64
	DueBytes               int64 // how many bytes of the reader's stream come before it is needed; 0 if a reader waits for it
}

// NewReaderID returns a number for a reader that gives Hints, unique in the process.
func NewReaderID() uint64 { return readers.Add(1) }

var readers atomic.Uint64

// Resident reads the parts of one object that are in memory, on the caller's goroutine. A small
// read then costs a system call instead of a pass through queues. It must not be used concurrently.
//
// The object was the one that was listed when the Resident was opened. A caller that relies on the
// bytes calls Unchanged, or Storage.Stat, after the last read.
type Resident interface {
	// Holds reports whether all of a range is in memory. It returns false if that is not known.
	Holds(offsetBytes, sizeBytes int64) bool
	// ReadAt fills p without waiting for a disk. It returns false if part of the range was no
	// longer in memory; p's contents are then undefined.
	ReadAt(p []byte, offsetBytes int64) bool
	// Unchanged returns nil if, after a read, the object is still the one that was listed, so that
	// the bytes read are the object's. Its name may belong to another file by now.
	Unchanged() error
	Close() error
}

// Verifier is for storages whose objects are computed from files, if reading the objects
// would read some parts of the files repeatedly and others never.
type Verifier interface {
	// AuditBytes returns about how many bytes of files an audit of an object reads.
	AuditBytes(o Object) int64
	// Audit reads all files that an object is computed from, once, and checks what can be checked.
	// It calls damage for each defect, with a text that names the file and the place, and read with
	// the number of bytes read since its last call. Only one goroutine at a time calls either.
	//
	// decodedBytes is the size of the files' data without compression. An error is the context's,
	// or names files that could not be read; that is not damage. The other files are checked
	// anyway, unless too many can't be read.
	Audit(ctx context.Context, o Object, damage func(reason string), read func(bytes int64)) (decodedBytes int64, err error)
}

// Mapper maps objects: those of their bytes that are in the page cache can be copied from mapped
// memory. A wrapper that alters reads, or delays successful ones, must not pass it on. Its methods
// may be called concurrently.
type Mapper interface {
	// Map opens and maps an object. It calls done once, from a goroutine of the storage
	// and never from within Map. Opening may take any time. No byte of a mapping may be
	// touched before it has been populated.
	//
	// Errors are *Error. They wrap ErrChanged, ErrTooManyMappings, or ErrNotMapped if this object
	// can never be mapped; after any other error it may be tried again later.
	Map(o Object, done func(Mapping, error))
	// Evictions returns a number that stays the same while the page cache is known to have lost no
	// pages, except perhaps in the last 100 ms. It is cheap enough to call for each read.
	Evictions() uint64
	Leaser
}

// Leaser grants leases on mapped objects. While an object has a lease, its bytes can't be altered.
// A program that wants to write has to wait until the lease is released, which happens at once. A
// process that is stopped, and so can't release it, loses the lease after a while without notice.
//
// Copied bytes are right if they can't have been altered before the copy was made:
//
//	breaks := l.Breaks()       before any
//	mapping.Leased() …         of each object
//	…                          copy
//	l.Unbroken(breaks)         true: the bytes are right; false: Check each object
type Leaser interface {
	// Breaks returns the number of leases so far that a program has waited for.
	Breaks() uint64
	// Unbroken reports whether all leases that existed when Breaks returned breaks have held until
	// now. False may also mean that this is not known.
	Unbroken(breaks uint64) bool
	LeaseStats() LeaseStats
}

// LeaseStats is a snapshot for status.json.
type LeaseStats struct {
	Held    int            `json:"held"`              // now
	Broken  uint64         `json:"broken"`            // because a program wanted to write
	Refused map[string]int `json:"refused,omitempty"` // mapped objects without one, by reason
}

// Mapping is an object in the address space. Ranges are in bytes and within the object. Methods may
// be called concurrently, except Close.
//
// If the file is truncated, its mapped memory disappears: touching it is then a fault (SIGBUS), and
// the rest of the last page reads as zeros. So copies are made under debug.SetPanicOnFault, and
// used only if, after the copy, leases were Unbroken or Check returned nil.
type Mapping interface {
	// Bytes returns the whole object. Only populated ranges may be read; nothing may be written.
	Bytes() []byte
	// Populate makes a range readable without a fault, if all of it is in the page cache now; else
	// it does nothing. Calls are counted: each needs a Drop of the same range. added is the number
	// of newly mapped bytes. Memory is mapped in blocks, and a block shared by two ranges is
	// counted once.
	Populate(off, size int64) (added int64, ok bool)
	// Trim unmaps what the kernel has mapped around a range along with it, up to whole folios of 2
	// MiB. Callers need it if no more may be mapped than is counted.
	Trim(off, size int64)
	// Resident reports whether all of a range is still in the page cache.
	Resident(off, size int64) bool
	// Drop ends one Populate of the same range. Nothing may touch the range any more,
	// unless another Populate covers it. freed is the number of bytes unmapped.
	Drop(off, size int64) (freed int64)
	// Check returns an *Error that wraps ErrChanged if the object is no longer the one that was
	// listed. If it returns nil, bytes that were copied before are right as far as the storage can
	// tell.
	Check() error
	// Leased reports whether the object has a lease. It costs next to nothing: the storage requests
	// leases on its own, repeatedly if necessary.
	Leased() bool
	// OpenForWriting reports whether the object has no lease because a program has it open for
	// writing. If that program stores through a mapping of its own, the file's attributes may not
	// show it, so Check can't detect it.
	OpenForWriting() bool
	// Lost reports that mapped bytes could not be accessed. If they are those of a copy of the
	// object, for example on a local disk, it returns an error that wraps ErrReadAgain: the copy is
	// not mapped any more, and losing it is not an error of the object. Otherwise it returns nil.
	Lost() error
	// Close unmaps everything. It may be called after the storage's Close.
	Close() error
}

// MapBlockBytes is the unit in which a Mapping is populated, dropped and counted.
const MapBlockBytes = 64 << 10

var (
	// ErrNotMapped is wrapped by errors about objects that can't be mapped, only read.
	ErrNotMapped = errors.New("not mapped")
	// ErrReadAgain is wrapped by errors of Mapping.Check and Lost about a copy that must not
	// be used any more. The caller discards what it read from the copy and reads it again, which
	// then uses another place.
	ErrReadAgain = errors.New("a copy of it is not there any more: it has to be read again")
	// ErrTooManyMappings is wrapped if other mappings must be closed first.
	ErrTooManyMappings = errors.New("too many files are mapped")
)
