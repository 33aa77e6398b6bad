package pipeline

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/fetch/strategy"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/cached"
)

// A disk cache is opened before the dataset is listed, since the index pass reads through it
// already, and gets its size once the dataset is known:
//
//	openCache ──► List, index pass ──► fitCache ──► records
//	half of what is free at most       room for the dataset; what is to be filled

const (
	// leastCacheBytes is the smallest cache that is made unasked: below that it holds hardly
	// more than what is on its way.
	leastCacheBytes = 256 << 20
	// A cache's buffers are a part of --memory, within these bounds: what is asked for in one
	// piece, and 128 chunks of 337 KB.
	cacheMemoryPart  = 16
	leastCacheBuffer = 8 << 20
	mostCacheBuffer  = 64 << 20
)

// cacheOver lays a disk cache over a storage. Where there can't be one, that is an error if
// the user has asked for it; else it is said in the log, and the storage itself is given.
func (m *mount) cacheOver(below storage.Storage, identify func(storage.Object) (cached.Identity, bool)) (storage.Storage, error) {
	if m.spec.Cache.Off {
		return below, nil
	}
	err := m.openCache(below, identify)
	switch {
	case err == nil:
		return m.cache, nil
	case m.spec.Cache.Asked():
		return nil, err
	}
	m.log.Warn("nothing of the dataset is kept on a disk, so each epoch is fetched again: name a directory with --cache-dir, or set --cache-size off", "reason", err)
	return below, nil
}

func (m *mount) openCache(below storage.Storage, identify func(storage.Object) (cached.Identity, bool)) error {
	c := &m.spec.Cache
	dir, err := CacheDirectory(c.Dir)
	if err != nil {
		return err
	}
	place, err := cached.Survey(dir)
	switch {
	case err != nil:
		return err
	case place.Network && c.Dir == "":
		return fmt.Errorf("cache directory %s: it is on a network file system or on FUSE: name one on a disk of this machine with --cache-dir", dir)
	}
	place.DatasetBytes = math.MaxInt64 / 4 // until it is known
	bound := cacheSize(c).Bound(place)
	if bound < leastCacheBytes && !sized(c) {
		return fmt.Errorf("cache directory %s: half of what is free there is %s, which is too little: name another one with --cache-dir, or a size with --cache-size",
			dir, humanize.IBytes(uint64(max(bound, 0))))
	}
	config := cached.DefaultConfig()
	config.Dir, config.Below, config.Engine, config.Identify, config.Log = dir, below, m.engine, identify, m.log
	config.BoundBytes, config.ReserveBytes = max(bound, 1), c.ReserveBytes
	if c.ReserveBytes < 0 {
		config.ReserveBytes = cached.Reserve(place.TotalBytes)
	}
	config.BufferBytes = min(max(m.spec.MemoryBytes/cacheMemoryPart, leastCacheBuffer), mostCacheBuffer)
	config.GapBytes = m.profile.GapBytes
	if m.cache, err = cached.Open(config); err != nil {
		return err
	}
	m.place = place
	return nil
}

// CacheDirectory is where what was read is kept: dir, absolute, or where that is "" lsiofs/data
// in the user's cache directory.
func CacheDirectory(dir string) (string, error) {
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("cache directory: %w: name one with --cache-dir", err)
		}
		dir = filepath.Join(user, "lsiofs", "data")
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("cache directory %s: %w", dir, err)
	}
	return absolute, nil
}

func cacheSize(c *spec.Cache) cached.Size {
	return cached.Size{Off: c.Off, Bytes: c.SizeBytes, Percent: c.SizePercent}
}

// sized says whether the user has said how large a cache is to be.
func sized(c *spec.Cache) bool { return c.SizeBytes > 0 || c.SizePercent > 0 }

// objectIdentity names the bytes of an object at a service, fileIdentity those of a file.
func (m *mount) objectIdentity(o storage.Object) (cached.Identity, bool) {
	url, validator, ok := m.service.Identity(o)
	return cached.Identity{URL: url, Validator: string(validator)}, ok
}

func (m *mount) fileIdentity(o storage.Object) (cached.Identity, bool) {
	v := o.Version
	return cached.Identity{
		URL:       "file://" + filepath.Join(m.root, o.Path),
		Validator: fmt.Sprintf("modified:%d changed:%d inode:%d", v.ModTimeNanos, v.ChangeTimeNanos, v.Inode),
	}, v.ModTimeNanos != 0
}

// fitCache gives the cache its size, now that the dataset is known, and says what is to be
// filled. How much of it passes through is the fetcher's to say.
func (g *generation) fitCache() error {
	s := &g.spec
	m := g.mount
	if m.cache == nil {
		return nil
	}
	objects := g.objects()
	p := m.place
	p.DatasetBytes, p.Objects = 0, int64(len(objects))
	for i := range objects {
		p.DatasetBytes += objects[i].SizeBytes
	}
	n := g.catalog.Records()
	if g.sampled() {
		n = g.records() // what lies between them is brought with them
	}
	if n > 0 {
		open := strategy.Sizes{Order: s.Order, Held: strategy.Held{Records: n, Pieces: g.chunks(), Bytes: p.DatasetBytes}}
		p.OpenBytes = open.OpenBytes()
	}
	bound := max(cacheSize(&s.Cache).Bound(p), 1)
	m.cache.SetBound(bound)
	if s.Cache.Fill == spec.FillAuto {
		m.cache.FillOnceRead(objects)
	}
	return nil
}

// objects are the dataset's, in its order.
func (g *generation) objects() []storage.Object {
	all := make([]storage.Object, g.catalog.Shards())
	for i := range all {
		all[i] = g.catalog.Shard(i).Object
	}
	return all
}
