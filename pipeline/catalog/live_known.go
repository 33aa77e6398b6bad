package catalog

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// known is a file that was indexed.
type known struct {
	shard     LiveShard
	place     index.Place
	sizeBytes int64 // of the file
	changed   int64 // Version.ChangeTimeNanos
	inode     uint64
	kind      uint32 // index into kinds
	codec     uint8
	format    uint8 // index into formats
	state     state
	damaged   bool
}

type state uint8

const (
	remembered state = iota // gone, or not seen yet
	isShard
	ofOtherKind
	ofTwice // a duplicate of a shard
)

func (k *known) object() storage.Object {
	return storage.Object{
		Path: k.shard.Path, SizeBytes: k.sizeBytes,
		Version: storage.Version{ModTimeNanos: k.shard.ModTimeNanos, ChangeTimeNanos: k.changed, Inode: k.inode},
	}
}

// asKnown returns a known for a file of which only the listing is known.
func asKnown(o storage.Object) *known {
	return &known{
		shard:     LiveShard{Path: o.Path, ModTimeNanos: o.Version.ModTimeNanos},
		sizeBytes: o.SizeBytes, changed: o.Version.ChangeTimeNanos, inode: o.Version.Inode,
	}
}

// newKnown returns a known for a shard stored at a place of the journals. mu must be held.
func (s *LiveIndex) newKnown(format int, p index.Place, x index.Shard) *known {
	h, k := x.Blob.Header(), asKnown(x.Object)
	k.shard.Records, k.shard.Units, k.shard.Bytes = h.Records, h.EntryPoints, uint64(h.DecodedBytes)
	k.place, k.damaged = p, h.Damaged()
	k.kind, k.codec, k.format = s.kindNumber(x.Blob), uint8(x.Codec), uint8(format)
	return k
}

const (
	maxKinds = 1024           // that are distinguished; usually there are a few
	manyKind = math.MaxUint32 // stands for all others
)

// kindNumber returns the number of a shard's kind: 0 if it has no records or its format has no
// kinds. mu must be held.
func (s *LiveIndex) kindNumber(b index.Blob) uint32 {
	kind := b.Kind()
	if len(kind) == 0 || b.Header().Records == 0 {
		return 0
	}
	for i := range s.kinds {
		if s.kinds[i] == string(kind) {
			return uint32(i)
		}
	}
	if len(s.kinds) == maxKinds {
		return manyKind
	}
	s.kinds = append(s.kinds, string(kind))
	return uint32(len(s.kinds) - 1)
}

// remember loads what the index directory has.
func (s *LiveIndex) remember() {
	lines := make([]string, len(s.formats))
	for i, f := range s.formats {
		lines[i] = formatLine(f)
	}
	var unwanted []index.Place
	var paths []string
	s.journals = s.store.OpenJournals(lines, func(format string, p index.Place, x index.Shard) {
		drop, path := p, x.Object.Path
		if before := s.known[path]; s.usable(x.Blob) && (before == nil || !older(x.Object, before)) {
			s.known[path] = s.newKnown(slices.Index(lines, format), p, x)
			if before == nil {
				return
			}
			drop = before.place
		}
		unwanted, paths = append(unwanted, drop), append(paths, path)
	})
	for i := range unwanted {
		s.journals.Drop(unwanted[i], paths[i])
	}
}

// usable reports whether this run would find what an earlier run found.
func (s *LiveIndex) usable(b index.Blob) bool {
	h := b.Header()
	return !s.config.Rebuild && !h.Unreadable() && (!h.Damaged() || s.config.OnCorrupt == spec.CorruptSkip)
}

// older reports whether an object was changed before the known one with its path.
func older(o storage.Object, k *known) bool {
	if o.Version.ChangeTimeNanos != k.changed {
		return o.Version.ChangeTimeNanos < k.changed
	}
	return o.Version.ModTimeNanos < k.shard.ModTimeNanos
}

// pin decides on the format. path is that of the first shard, "" if there is none yet.
func (s *LiveIndex) pin(format int, path string) error {
	found, err := discover.OfFormat(s.formats[format], path)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if path == "" {
		found.StreamExtension = ""
	}
	s.format, s.found = format, found
	for path, k := range s.known {
		if int(k.format) != format {
			s.drop(path, k)
		}
	}
	s.journals.Begin(formatLine(found.Format))
	s.pass = s.newPass()
	return nil
}

// pinLine pins the format that has this line.
func (s *LiveIndex) pinLine(line string) error {
	for i := range s.formats {
		if formatLine(s.formats[i]) == line {
			return s.pin(i, "")
		}
	}
	return fmt.Errorf("dataset %s: the shards of the run have format %s: choose it with --format and its other flags", &s.target, line)
}

// drop removes a known file. mu must be held.
func (s *LiveIndex) drop(path string, k *known) {
	s.setState(k, remembered)
	delete(s.known, path)
	s.journals.Drop(k.place, path)
}

// setState moves a file to another state, and updates the counts. mu must be held.
func (s *LiveIndex) setState(k *known, to state) {
	count := func(n int) {
		switch k.state {
		case isShard:
			s.counts.Shards += n
			s.counts.Records += uint64(n) * k.shard.Records
			s.counts.Units += uint64(n) * k.shard.Units
			s.counts.Bytes += uint64(n) * k.shard.Bytes
		case ofOtherKind:
			s.counts.OtherKind += n
		case ofTwice:
			s.counts.Twice += n
		}
	}
	from := k.state
	count(-1)
	k.state = to
	count(1)
	s.countTwins(k, from)
}

// Has reports whether a file is known in exactly this version: indexed, waiting or passed over.
func (s *LiveIndex) Has(o storage.Object) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if k := s.known[o.Path]; k != nil && k.object() == o {
		return true
	}
	if w := s.waiting[o.Path]; w != nil && w.object == o {
		return true
	}
	passed, ok := s.passed[o.Path]
	return ok && passed == o
}

// Shards returns the shards that a snapshot may contain: whole, of the live index's format and
// kind, in no particular order.
func (s *LiveIndex) Shards() []LiveShard {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]LiveShard, 0, s.counts.Shards)
	for _, k := range s.known {
		if k.state == isShard {
			list = append(list, k.shard)
		}
	}
	return list
}

// gone is a file that was forgotten.
type gone struct {
	path string
	at   time.Time
}

const (
	// The index of a file that is gone is kept for a while, in case a snapshot was taken just
	// before or the file comes back.
	goneKept = time.Hour
	goneMost = 1 << 16
)

// Forget reports that a file is gone, or is being written to.
func (s *LiveIndex) Forget(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reading, path)
	delete(s.waiting, path)
	delete(s.passed, path)
	s.forget(path)
}

// forget changes the state of a known file to remembered. mu must be held.
func (s *LiveIndex) forget(path string) {
	k := s.known[path]
	if k == nil || k.state == remembered {
		return
	}
	s.setState(k, remembered)
	s.gone = append(s.gone, gone{path, s.config.Now()})
	s.dropGone()
}

// dropGone drops the index of files that have been gone for long, or of the oldest if there are too
// many. mu must be held.
func (s *LiveIndex) dropGone() {
	now, n := s.config.Now(), 0
	for n < len(s.gone) && (len(s.gone)-n > goneMost || now.Sub(s.gone[n].at) >= goneKept) {
		if k := s.known[s.gone[n].path]; k != nil && k.state == remembered {
			s.drop(s.gone[n].path, k)
		}
		s.gone[n] = gone{}
		n++
	}
	s.gone = s.gone[n:]
}

// dropUnseen drops what other runs have left of files that were not seen in this one.
func (s *LiveIndex) dropUnseen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.droppedUnseen || s.config.Now().Sub(s.opened) < goneKept {
		return
	}
	s.droppedUnseen = true
	forgotten := map[string]bool{}
	for _, g := range s.gone {
		forgotten[g.path] = true
	}
	for path, k := range s.known {
		if k.state == remembered && !forgotten[path] {
			s.drop(path, k)
		}
	}
}

// twins finds files of a live index that are duplicates of one shard: the same file under two
// names, or a file in two codecs, such as zstd and gunzip -k leave. The first one admitted counts
// (in a batch, the first by path); the others wait until it is gone. They are indexed nevertheless,
// because an epoch chosen by another node may contain them.
//
// It holds about 30 bytes per shard, and as much again if the shard's name implies a codec.
type twins struct {
	shards map[uint64]*known   // those that count, by the keys
	twice  map[uint64][]*known // those that wait
}

// keys returns the keys of a file. Two duplicates have at least one of them in common; other files
// may have it too.
func (k *known) keys() (list []uint64) {
	if plain := formats.ParseName(k.shard.Path).Plain; plain != k.shard.Path {
		list = append(list, xxh3.HashString(plain))
	}
	if k.inode != 0 {
		var b [32]byte
		for i, v := range []uint64{uint64(k.sizeBytes), uint64(k.shard.ModTimeNanos), uint64(k.changed), k.inode} {
			binary.LittleEndian.PutUint64(b[8*i:], v)
		}
		list = append(list, xxh3.Hash(b[:]))
	}
	return list
}

// sameFile reports whether two names are of one file. Inode, size and both times together also
// distinguish files of different devices.
func (k *known) sameFile(o *known) bool {
	return k.inode != 0 && k.inode == o.inode && k.sizeBytes == o.sizeBytes && k.changed == o.changed && k.shard.ModTimeNanos == o.shard.ModTimeNanos
}

// otherCodec reports whether two names differ only in the codec.
func (k *known) otherCodec(o *known) bool {
	return formats.ParseName(k.shard.Path).Plain == formats.ParseName(o.shard.Path).Plain
}

// twinOf returns the shard that counts and is a duplicate of k, nil if there is none. mu must be
// held.
func (s *LiveIndex) twinOf(k *known) *known {
	is := func(o *known) bool {
		return o != nil && o != k && o.state == isShard && (k.otherCodec(o) || k.sameFile(o))
	}
	if o := s.known[formats.ParseName(k.shard.Path).Plain]; is(o) {
		return o
	}
	for _, key := range k.allKeys() {
		if o := s.twins.shards[key]; is(o) {
			return o
		}
	}
	return nil
}

// twiceReason returns why a file in state ofTwice waits. mu must be held.
func (s *LiveIndex) twiceReason(k *known) string {
	o := s.twinOf(k)
	if o == nil {
		return "it duplicates a shard that is already used: remove one of them, or leave it out with --exclude or a pattern"
	}
	return discover.TwiceReason(k.shard.Path, o.shard.Path)
}

// countTwins updates the tables after a file has changed its state. The files that waited for it
// now count, the first by path. mu must be held.
func (s *LiveIndex) countTwins(k *known, from state) {
	if from == k.state {
		return
	}
	keys := k.keys()
	switch from {
	case isShard:
		for _, key := range keys {
			if s.twins.shards[key] == k {
				delete(s.twins.shards, key)
			}
		}
	case ofTwice:
		for _, key := range k.allKeys() {
			list := slices.DeleteFunc(s.twins.twice[key], func(o *known) bool { return o == k })
			if s.twins.twice[key] = list; len(list) == 0 {
				delete(s.twins.twice, key)
			}
		}
	}
	switch k.state {
	case isShard:
		for _, key := range keys {
			s.twins.shards[key] = k
		}
	case ofTwice:
		for _, key := range k.allKeys() {
			s.twins.twice[key] = append(s.twins.twice[key], k)
		}
	}
	if from == isShard && len(s.twins.twice) > 0 {
		s.admitTwins(k)
	}
}

// allKeys returns the keys, and the hash of the plain name even if the name has no codec. With
// these the shards that wait for k are found.
func (k *known) allKeys() []uint64 {
	keys := k.keys()
	if formats.ParseName(k.shard.Path).Plain == k.shard.Path {
		keys = append(keys, xxh3.HashString(k.shard.Path))
	}
	return keys
}

// laterTwins reports for each shard whether one before it may be a duplicate.
func laterTwins(shards []discover.Shard) []bool {
	later, seen := make([]bool, len(shards)), map[uint64]bool{}
	for i := range shards {
		for _, key := range asKnown(shards[i].Object).allKeys() {
			later[i] = later[i] || seen[key]
			seen[key] = true
		}
	}
	return later
}

// admitTwins admits the files that waited for k, unless they wait for another one. mu must be held.
func (s *LiveIndex) admitTwins(k *known) {
	var list []*known
	for _, key := range k.allKeys() {
		list = append(list, s.twins.twice[key]...)
	}
	slices.SortFunc(list, func(a, b *known) int { return strings.Compare(a.shard.Path, b.shard.Path) })
	for _, o := range list {
		if o.state == ofTwice {
			s.setState(o, s.stateOf(o))
		}
	}
}
