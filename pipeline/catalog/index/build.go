package index

import (
	"fmt"
	"os"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Build is an index under construction. Finished shards go to a journal in the index directory, so
// that the next build can continue an interrupted one: Find returns what such builds have left. If
// the directory can't be written, everything is in memory.
//
//	b := store.Begin(format, usable)
//	defer b.Close()
//	b.Find(object)           // for each shard that is wanted
//	b.Add(i, shard)          // for each that was not found
//	b.Added(set)             // once, after all were added
//	b.Seal(where, content)   // at the end
//
// Several processes may each build a part (BeginPart), without Seal.
type Build struct {
	store    *Store
	own      *journal
	left     []*os.File // journals of interrupted builds, locked
	maps     []*mapping // of these, and of its own journal
	found    map[storage.Object]Shard
	isStored bool // sealed, in the index directory
}

// Begin begins a build of shards in a format. usable reports whether a shard that an interrupted
// build, or one of another process, has finished may be used; nil for none.
func (s *Store) Begin(format string, usable func(Blob) bool) *Build {
	b := &Build{store: s, own: newJournal(s, format), left: s.abandoned(".journal"), found: map[storage.Object]Shard{}}
	if usable == nil {
		return b
	}
	mine := map[string]bool{}
	for _, f := range b.left {
		mine[f.Name()] = true
		if m, err := s.mapWhole(f, false); err == nil {
			b.take(m, usable)
		}
	}
	// Whole entries in the journals of living processes count, too. If a file system has no locks,
	// or refuses them, all journals are read this way.
	b.takeOthers(mine, usable)
	return b
}

// BeginPart begins a build of some of a dataset's shards, concurrently with those of other
// processes. Shards that they have finished are found and remain in their journals; added shards
// remain after Close, for the build that seals. Shards in another format are not found.
func (s *Store) BeginPart(format string, usable func(Blob) bool) *Build {
	b := &Build{store: s, own: newJournal(s, format), found: map[storage.Object]Shard{}}
	b.takeOthers(nil, usable)
	return b
}

// takeOthers takes the whole entries of journals that are not locked by this build.
func (b *Build) takeOthers(mine map[string]bool, usable func(Blob) bool) {
	s := b.store
	for _, path := range s.files(s.name+".", ".journal") {
		if mine[path] {
			continue
		}
		f, err := s.openStored(path)
		if err != nil {
			continue
		}
		if m, err := s.mapJournal(f, false); err == nil {
			b.take(m, usable)
		}
		_ = f.Close()
	}
}

// take adds a journal's shards to found, unless it is of another version or format.
func (b *Build) take(m *mapping, usable func(Blob) bool) {
	b.maps = append(b.maps, m)
	entries, err := readJournal(m.data, b.own.head)
	if err != nil {
		return
	}
	for _, p := range entries {
		if usable(p.Blob) {
			b.found[p.Object] = p
		}
	}
}

// Stays reports whether the added shards are in the index directory, i.e. it could be written. It
// must be called after Added.
func (b *Build) Stays() bool { return !b.own.inMemory() }

// Find returns a shard that another build has finished, if the object has not changed since. Its
// blob is valid until Close.
func (b *Build) Find(o storage.Object) (s Shard, found bool) {
	s, found = b.found[o]
	return s, found
}

// Add stores a finished shard; i is its number in the build. It may be called concurrently.
func (b *Build) Add(i int, s Shard) error { return b.own.append(i, s) }

// Added calls set with the number, codec and blob of each shard that was added. The blob is in the
// journal's mapping, and valid until Close. No more shards can be added.
func (b *Build) Added(set func(i int, codec uint32, blob Blob)) error {
	maps, err := b.own.blobs(set)
	b.maps = append(b.maps, maps...)
	return err
}

// Seal writes the index, to memory if necessary, and opens it. where names the dataset in messages.
func (b *Build) Seal(where string, c Content) (*Image, error) {
	sealing, err := newSealing(c, b.store.key)
	if err != nil {
		return nil, err
	}
	m, f, err := b.store.seal(sealing, "index", b.own.inMemory())
	if err != nil {
		return nil, fmt.Errorf("index of %s: %w", where, err)
	}
	stored := f != nil
	if stored {
		_ = f.Close()
	}
	i, err := openMapped(m, b.store.key)
	if err != nil {
		return nil, fmt.Errorf("the index of %s that was just written %w: check the disk of %s", where, err, b.store.dir)
	}
	if b.isStored = stored; stored {
		b.store.remember(sealing.fingerprint, c.Lines)
	}
	return i, nil
}

// Close ends the build. The added shards remain for the next one, unless the index is now in the
// index directory: then everything that interrupted builds have left is removed.
func (b *Build) Close() {
	b.own.close(!b.isStored)
	if b.isStored {
		for _, f := range b.left {
			_ = os.Remove(f.Name())
		}
		b.store.clean(".tmp")
	}
	for _, m := range b.maps {
		_ = m.Close()
	}
	for _, f := range b.left {
		_ = f.Close() // this unlocks it
	}
}
