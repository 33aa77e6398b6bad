package pipeline

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// The disk cache is opened before the dataset is listed, because the index pass already reads
// through it. It gets its size once the dataset is known:
//
//	openCache ──► List, index pass ──► fitCache ──► records
//	at most half of the free space     room for the dataset; what to fill

const (
	// leastCacheBytes is the smallest cache that is created by default. A smaller one holds little
	// more than the reads in flight.
	leastCacheBytes = 256 << 20
	// A cache's buffers are a part of --memory, within these bounds: the largest single request,
	// and 128 chunks of 337 KB.
	cacheMemoryPart  = 16
	leastCacheBuffer = 8 << 20
	mostCacheBuffer  = 64 << 20
)

// cacheOver wraps a storage with a disk cache. If no cache can be opened, it returns an error if
// the user asked for one; otherwise it logs a warning and returns the storage itself.
func (m *mount) cacheOver(below storage.Storage, identify func(storage.Object) (diskcache.Identity, bool)) (storage.Storage, error) {
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

func (m *mount) openCache(below storage.Storage, identify func(storage.Object) (diskcache.Identity, bool)) (err error) {
	m.cache, m.place, err = m.newCache(below, identify)
	return err
}

// newCache opens a disk cache, as the user wants it, over a storage. place is what there is
// where it lies.
func (m *mount) newCache(below storage.Storage, identify func(storage.Object) (diskcache.Identity, bool)) (cache *diskcache.Storage, place diskcache.Place, err error) {
	c := &m.spec.Cache
	dir, err := CacheDirectory(c.Dir)
	if err != nil {
		return nil, place, err
	}
	place, err = diskcache.Survey(dir)
	switch {
	case err != nil:
		return nil, place, err
	case place.Network && c.Dir == "":
		return nil, place, fmt.Errorf("cache directory %s: it is on a network file system or on FUSE: name one on a disk of this machine with --cache-dir", dir)
	}
	place.DatasetBytes = math.MaxInt64 / 4 // until the dataset's size is known
	bound := cacheSize(c).Bound(place)
	if bound < leastCacheBytes && !sized(c) {
		return nil, place, fmt.Errorf("cache directory %s: half of what is free there is %s, which is too little: name another one with --cache-dir, or a size with --cache-size",
			dir, humanize.IBytes(uint64(max(bound, 0))))
	}
	config := diskcache.DefaultConfig()
	config.Dir, config.Below, config.Engine, config.Identify, config.Log = dir, below, m.engine, identify, m.log
	config.BoundBytes, config.ReserveBytes = max(bound, 1), c.ReserveBytes
	if c.ReserveBytes < 0 {
		config.ReserveBytes = diskcache.Reserve(place.TotalBytes)
	}
	config.BufferBytes = min(max(m.spec.MemoryBytes/cacheMemoryPart, leastCacheBuffer), mostCacheBuffer)
	config.GapBytes = m.profile.GapBytes
	cache, err = diskcache.Open(config)
	return cache, place, err
}

// CacheDirectory returns the absolute path of the disk cache: dir, or lsiofs/data in the user's
// cache directory if dir is "".
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

func cacheSize(c *spec.Cache) diskcache.Size {
	return diskcache.Size{Off: c.Off, Bytes: c.SizeBytes, Percent: c.SizePercent}
}

// sized reports whether the user gave a size for the cache.
func sized(c *spec.Cache) bool { return c.SizeBytes > 0 || c.SizePercent > 0 }

// objectIdentity identifies the bytes of an object at a service, fileIdentity those of a file.
func (m *mount) objectIdentity(o storage.Object) (diskcache.Identity, bool) {
	url, validator, ok := m.service.Identity(o)
	return diskcache.Identity{URL: url, Validator: string(validator)}, ok
}

func (m *mount) fileIdentity(o storage.Object) (diskcache.Identity, bool) {
	v := o.Version
	return diskcache.Identity{
		URL:       "file://" + filepath.Join(m.root, o.Path),
		Validator: fmt.Sprintf("modified:%d changed:%d inode:%d", v.ModTimeNanos, v.ChangeTimeNanos, v.Inode),
	}, v.ModTimeNanos != 0
}

// fitCache sizes the cache, now that the dataset is known, and selects what to fill. The fetcher
// decides how much of the cache is for data that is only passing through.
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
		n = g.records() // the data between the sampled records is fetched with them
	}
	if n > 0 {
		open := choose.Sizes{Settings: choose.Settings{Order: s.Order}, Held: choose.Held{Records: n, Pieces: g.chunks(), Bytes: p.DatasetBytes}}
		p.OpenBytes = open.OpenBytes()
	}
	m.keeping.Lock()
	m.fitted = p
	m.keeping.Unlock()
	m.cache.SetBound(max(cacheSize(&s.Cache).Bound(p), 1))
	if s.Cache.Fill == spec.FillAuto {
		m.cache.FillOnceRead(objects)
	}
	return nil
}

// objects returns the dataset's objects in dataset order.
func (g *generation) objects() []storage.Object {
	all := make([]storage.Object, g.catalog.Shards())
	for i := range all {
		all[i] = g.catalog.Shard(i).Object
	}
	return all
}
