package catalog

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
)

// twins finds files of a live index that are duplicates of one shard: the same file under two names, or
// a file in two codecs, such as zstd and gunzip -k leave. The first one admitted counts (in a
// batch, the first by path); the others wait until it is gone. They are indexed nevertheless,
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
		return "it is a shard that counts already: remove one of them, or leave it out with --exclude or a pattern"
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
