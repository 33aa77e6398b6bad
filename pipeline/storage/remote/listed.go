package remote

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
)

// fingerprint returns a validator in 64 bits: the first 8 bytes, big-endian, of its SHA-256; 0 for
// "". It is stored in storage.Version in place of a file's inode.
func fingerprint(v Validator) uint64 {
	if v == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(v))
	return binary.BigEndian.Uint64(sum[:])
}

// listed holds the validators of a dataset's objects, in about 50 bytes each: a listing may have
// millions, and their paths are already stored elsewhere. It is safe for concurrent use.
//
//	at      xxh3 of the path → hash of path, size and version; position of its validator
//	packed  validators, one after another: a length, then so many bytes
//
// Two paths with the same hash would share one validator. But the compared hash includes the path,
// so the one that was listed first gives ErrChanged, and never wrong bytes.
type listed struct {
	mu     sync.RWMutex
	at     map[uint64]entry
	packed []byte
	// unversioned holds objects, by path, of which only the size is compared (dropVersion).
	unversioned map[string]storage.Object
}

type entry struct {
	seen  uint64 // hash of path, size and version
	place uint64 // in packed; highest bit: the server has sent the whole object for a range
}

const noRanges = 1 << 63

func (l *listed) put(o storage.Object, v Validator) {
	key, e := xxh3.HashString(o.Path), entry{seen: seen(o)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = make(map[uint64]entry)
	}
	old, again := l.at[key]
	if old.seen == e.seen {
		return
	}
	e.place = uint64(len(l.packed))
	l.packed = pack(l.packed, v)
	if packed := l.packed[e.place:]; again && packedBytes(l.packed[old.place&^noRanges:]) == len(packed) {
		e.place = old.place &^ noRanges // reuse the space, so that changing versions use no more memory
		copy(l.packed[e.place:], packed)
		l.packed = l.packed[:len(l.packed)-len(packed)]
	}
	l.at[key] = e
}

// get returns the validator of an object as it was listed, and whether its server is known to send
// the whole object for a range. ok is false if it was not listed like this.
func (l *listed) get(o storage.Object) (v Validator, whole, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	e, ok := l.at[xxh3.HashString(o.Path)]
	if !ok || e.seen != seen(o) {
		return "", false, false
	}
	if l.unversioned[o.Path] == o {
		return "", e.place&noRanges != 0, true
	}
	return unpack(l.packed[e.place&^noRanges:]), e.place&noRanges != 0, true
}

// Identity identifies the bytes of an object across runs, by its location, as a URL without
// secrets, and its version. ok is false for objects that were not listed like this or have no
// version (Config.Unversioned).
func (s *Storage) Identity(o storage.Object) (url string, v Validator, ok bool) {
	v, _, ok = s.listed.get(o)
	if !ok || v == "" {
		return "", "", false
	}
	url, v = identity(s.source.Name(), o, v)
	return url, v, true
}

func identity(root string, o storage.Object, v Validator) (url string, _ Validator) {
	if o.Version.Inode != fingerprint(v) { // see version
		v += Validator(fmt.Sprintf(" variant %016x", o.Version.Inode))
	}
	root = strings.TrimSuffix(root, "/")
	if host, file, is := target.Elsewhere(o.Path); is && strings.HasPrefix(root, "http") {
		root, o.Path = host, file
	}
	return root + "/" + o.Path, v
}

// setWhole records that an object's server sends the whole object for a range.
func (l *listed) setWhole(o storage.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := xxh3.HashString(o.Path)
	if e, ok := l.at[key]; ok && e.seen == seen(o) {
		e.place |= noRanges
		l.at[key] = e
	}
}

// dropVersion makes the size the only thing that is compared of an object from now on, because its
// service returns another version at each look. If it is listed again with that size, it is the
// same object.
func (l *listed) dropVersion(o storage.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unversioned == nil {
		l.unversioned = make(map[string]storage.Object)
	}
	if _, again := l.unversioned[o.Path]; !again {
		l.unversioned[o.Path] = o
	}
}

// withoutVersion returns the object that dropVersion was called with, and whether o may be the
// same.
func (l *listed) withoutVersion(o storage.Object) (storage.Object, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	known, ok := l.unversioned[o.Path]
	return known, ok && known.SizeBytes == o.SizeBytes
}

// seen returns a hash of path, size and version. It is never 0.
func seen(o storage.Object) uint64 {
	var p [24]byte
	binary.LittleEndian.PutUint64(p[:], uint64(o.SizeBytes))
	binary.LittleEndian.PutUint64(p[8:], uint64(o.Version.ModTimeNanos))
	binary.LittleEndian.PutUint64(p[16:], o.Version.Inode)
	return max(xxh3.HashSeed(append(p[:], o.Path...), 1), 1)
}

// md5Length is the length of S3's usual ETag, 32 hexadecimal digits in quotes. It is stored in 18
// bytes instead of 36. md5Mark can't be the length of a validator, which is at most
// maxValidatorBytes.
const (
	md5Length         = 34
	md5Mark           = 0xffff
	maxValidatorBytes = 0xfffe
)

func pack(to []byte, v Validator) []byte {
	if len(v) == md5Length && v[0] == '"' && v[md5Length-1] == '"' {
		if raw, err := hex.DecodeString(string(v[1 : md5Length-1])); err == nil && Validator(`"`+hex.EncodeToString(raw)+`"`) == v {
			return append(binary.LittleEndian.AppendUint16(to, md5Mark), raw...)
		}
	}
	return append(binary.LittleEndian.AppendUint16(to, uint16(len(v))), v...)
}

// packedBytes returns the length of what pack wrote.
func packedBytes(from []byte) int {
	n := binary.LittleEndian.Uint16(from)
	if n == md5Mark {
		return 2 + 16
	}
	return 2 + int(n)
}

func unpack(from []byte) Validator {
	n := binary.LittleEndian.Uint16(from)
	if from = from[2:]; n == md5Mark {
		return Validator(`"` + hex.EncodeToString(from[:16]) + `"`)
	}
	return Validator(from[:n])
}

// Known is a listing from an earlier run, used while a service can't be reached. Reads name the
// versions in it, so an object that has changed since then gives an error, never other bytes.
type Known struct {
	Asked   time.Time // when the service was asked for it, or just before
	Objects []KnownObject
}

// KnownObject is an object and its validator as they were listed.
type KnownObject struct {
	storage.Object
	Validator Validator
}

// Identity is Storage.Identity for the object, in a dataset at root.
func (o KnownObject) Identity(root string) (url string, v Validator) {
	return identity(root, o.Object, o.Validator)
}

// UnansweredError means that a service gave no answer, or only temporary failures, for as long as
// the request was retried. It is never used for answers such as 403 or 404.
type UnansweredError struct{ Err error }

func (e *UnansweredError) Error() string { return e.Err.Error() }
func (e *UnansweredError) Unwrap() error { return e.Err }

// unanswered turns the last error of a request into an UnansweredError, if f is a temporary
// failure.
func unanswered(f finding, err error) error {
	if f.kind == kindAgain || f.kind == kindThrottled {
		return &UnansweredError{err}
	}
	return err
}

// listKnown is List for a listing from an earlier run.
func (s *Storage) listKnown(match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	l := &listing{s: s, match: match, entered: true}
	for _, o := range s.config.Known.Objects {
		if !l.enters(o.Path) || !match(o.Path, false) {
			continue
		}
		if err := visit(s.known(o)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Storage) known(o KnownObject) storage.Object {
	s.listed.put(o.Object, o.Validator)
	return o.Object
}

// Known returns objects as they were listed, with their validators. It returns an error if one of
// them was not listed like this or has no validator.
func (s *Storage) Known(objects []storage.Object) (*Known, error) {
	k := &Known{Asked: s.began, Objects: make([]KnownObject, len(objects))}
	for i, o := range objects {
		v, _, ok := s.listed.get(o)
		if !ok || v == "" {
			return nil, fmt.Errorf("%s has no version that could be told from another", o.Path)
		}
		k.Objects[i] = KnownObject{o, v}
	}
	return k, nil
}

// Later is a Source that is opened at its first use, and again if that fails: for a service that
// can't be reached yet. Its name is known. The zero value can't be used.
type Later struct {
	name string
	open func(context.Context) (Source, error)

	mu     sync.Mutex
	turn   chan struct{} // holds a value while the source is being opened
	source Source
}

// NewLater returns a Source that calls open when it is first used. The Source that open returns
// must have that name.
func NewLater(name string, open func(context.Context) (Source, error)) *Later {
	return &Later{name: name, open: open, turn: make(chan struct{}, 1)}
}

// opened returns the Source, opening it if necessary.
func (l *Later) opened(ctx context.Context) (Source, error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.turn }()
	if s := l.now(); s != nil {
		return s, nil
	}
	s, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	if s.Name() != l.name {
		return nil, errors.Join(Refuse("the dataset lies at %s now, and lay at %s when it was listed: mount again", s.Name(), l.name), s.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.source = s
	return s, nil
}

func (l *Later) now() Source {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.source
}

// List implements Source.
func (l *Later) List(ctx context.Context, page string, visit func(Listed) error) ([]string, error) {
	s, err := l.opened(ctx)
	if err != nil {
		return nil, err
	}
	return s.List(ctx, page, visit)
}

// Head implements Source.
func (l *Later) Head(ctx context.Context, path string) (Listed, error) {
	s, err := l.opened(ctx)
	if err != nil {
		return Listed{}, err
	}
	return s.Head(ctx, path)
}

// Open implements Source.
func (l *Later) Open(ctx context.Context, path string, v Validator, off, n int64) (Answer, error) {
	s, err := l.opened(ctx)
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.answer(), nil
	}
	if err != nil {
		return Answer{}, err
	}
	return s.Open(ctx, path, v, off, n)
}

// Refresh implements Source.
func (l *Later) Refresh(ctx context.Context, path string) {
	if s := l.now(); s != nil {
		s.Refresh(ctx, path)
	}
}

// Name implements Source.
func (l *Later) Name() string { return l.name }

// Close implements Source.
func (l *Later) Close() error {
	if s := l.now(); s != nil {
		return s.Close()
	}
	return nil
}
