package catalog

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/unpack/formats"
)

// twins finds files of a stock that are one shard: the same file by two names, or one in two
// codecs, as zstd and gunzip -k leave it. The first one that is admitted counts, of a batch the
// first by path; the others wait until it is gone. They are indexed all the same, since an epoch
// that another node has taken may be of them.
//
// Kept are about 30 bytes a shard, and as much again where its name says a codec.
type twins struct {
	shards map[uint64]*known   // those that count, by the keys
	twice  map[uint64][]*known // those that wait
}

// keys are what two files that are one have in common: at least one of them. Others may have it
// too.
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

// sameFile reports whether two names are of one file. Inode, size and both times together tell
// files of different devices apart, too.
func (k *known) sameFile(o *known) bool {
	return k.inode != 0 && k.inode == o.inode && k.sizeBytes == o.sizeBytes && k.changed == o.changed && k.shard.ModTimeNanos == o.shard.ModTimeNanos
}

// otherCodec reports whether two names differ in the codec alone.
func (k *known) otherCodec(o *known) bool {
	return formats.ParseName(k.shard.Path).Plain == formats.ParseName(o.shard.Path).Plain
}

// twinOf returns a shard that counts and is the same as k, nil where there is none. mu is held.
func (s *Stock) twinOf(k *known) *known {
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

// twiceReason is why a file of the state ofTwice waits. mu is held.
func (s *Stock) twiceReason(k *known) string {
	o := s.twinOf(k)
	if o == nil {
		return "it is a shard that counts already: remove one of them, or leave it out with --exclude or a pattern"
	}
	return discover.TwiceReason(k.shard.Path, o.shard.Path)
}

// countTwins keeps the tables when a file has come to another state. What waited for it counts
// now, the first by path. mu is held.
func (s *Stock) countTwins(k *known, from state) {
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

// allKeys are the keys, and that of the name without a codec where it is the name itself: by it
// the shards are found that wait for k.
func (k *known) allKeys() []uint64 {
	keys := k.keys()
	if formats.ParseName(k.shard.Path).Plain == k.shard.Path {
		keys = append(keys, xxh3.HashString(k.shard.Path))
	}
	return keys
}

// laterTwins reports of each shard whether one before it may be the same.
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

// admitTwins has those count that waited for k, unless they wait for another one. mu is held.
func (s *Stock) admitTwins(k *known) {
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
