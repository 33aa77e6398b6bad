package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/read"
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
	m.log.Warn("the dataset is not cached on a disk, so each epoch is fetched again: name a directory with --cache-dir, or set --cache-size off", "reason", err)
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
		return nil, place, fmt.Errorf("cache directory %s: half of the free space there is %s, which is too little: name another one with --cache-dir, or a size with --cache-size",
			dir, humanize.IBytes(uint64(max(bound, 0))))
	}
	config := diskcache.DefaultConfig()
	config.Dir, config.Below, config.Engine, config.Identify, config.Log = dir, below, m.engine, identify, m.log
	config.BoundBytes, config.ReserveBytes = max(bound, 1), m.reserveBytes(place)
	if why := diskcache.DownToReserve(place.FreeBytes, config.ReserveBytes, 0); why != "" {
		m.log.Warn("nothing more is kept in the disk cache: "+why, "dir", dir)
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

// Decoded shards are kept in the disk cache: in the one that lies over the dataset's storage,
// or, for a dataset on a disk of this machine, in one that is opened for them alone, if the
// user names a directory or a size.

// keep makes a shelf for decoded shards in the disk cache, nil where there is none. Where its
// size is automatic it grows by what they take.
func (m *mount) keep(k read.KeptShards) (*diskcache.Shelf, error) {
	m.keeping.Lock()
	defer m.keeping.Unlock()
	c, err := m.cacheOfDecoded()
	if c == nil || err != nil {
		return nil, err
	}
	m.fillInstead(k)
	return c.NewShelf(m.shelfConfig(k, m.fitDecoded(c, k)))
}

// dryKeep returns a dry shelf of what keep's would have. It neither opens nor creates a cache.
func (m *mount) dryKeep(k read.KeptShards) *diskcache.Shelf {
	m.keeping.Lock()
	defer m.keeping.Unlock()
	dir, place, ok := m.placeOfDecoded()
	if !ok {
		return nil
	}
	bound, rawBytes := m.boundWith(place, k)
	return diskcache.NewDryShelf(dir, bound, m.shelfConfig(k, rawBytes))
}

// placeOfDecoded returns where the cache for decoded shards is or would be, and false if there is
// none. It is called with m.keeping held.
func (m *mount) placeOfDecoded() (dir string, place diskcache.Place, ok bool) {
	c := &m.spec.Cache
	opened := m.cache != nil || m.decoded.Load() != nil
	if !opened && (c.Off || c.Dir == "" && !sized(c)) {
		return "", place, false
	}
	dir, err := CacheDirectory(c.Dir)
	if err != nil {
		return "", place, false
	}
	if opened {
		return dir, m.place, true
	}
	place, err = diskcache.Survey(dir)
	return dir, place, err == nil && !(place.Network && c.Dir == "")
}

// keepsAll reports whether the user asked for a cache, and its bound and its disk have room for all
// decoded shards besides the dataset as it is. A cache that is there by default is not filled with
// more than its dataset needs.
func (m *mount) keepsAll(k read.KeptShards) bool {
	c := &m.spec.Cache
	if c.Dir == "" && !sized(c) {
		return false
	}
	m.keeping.Lock()
	defer m.keeping.Unlock()
	_, place, ok := m.placeOfDecoded()
	if !ok {
		return false
	}
	bound, rawBytes := m.boundWith(place, k)
	x := m.shelfConfig(k, rawBytes)
	return x.KeepsAll(min(bound, place.FreeBytes+place.CacheBytes-m.reserveBytes(place)))
}

// reserveBytes returns how much of its file system a cache leaves free.
func (m *mount) reserveBytes(p diskcache.Place) int64 {
	if n := m.spec.Cache.ReserveBytes; n >= 0 {
		return n
	}
	return diskcache.Reserve(p.TotalBytes)
}

// fitDecoded gives a cache room for decoded shards, where its size is automatic, and returns
// what others of the dataset need. It is called with m.keeping held.
func (m *mount) fitDecoded(c *diskcache.Storage, k read.KeptShards) (rawBytes int64) {
	bound, rawBytes := m.boundWith(m.place, k)
	c.SetBound(bound)
	return rawBytes
}

// boundWith returns the bound of a cache of the dataset with decoded shards, and what the rest of
// the dataset needs of it. It is called with m.keeping held.
func (m *mount) boundWith(p diskcache.Place, k read.KeptShards) (bound, rawBytes int64) {
	p.DatasetBytes, p.Objects, p.OpenBytes = m.fitted.DatasetBytes, m.fitted.Objects, m.fitted.OpenBytes
	rawBytes = p.NeedBytes()
	p.DatasetBytes += k.AllBytes
	p.Objects += int64(len(k.Shards))
	p.OpenBytes += k.NeedBytes
	return max(cacheSize(&m.spec.Cache).Bound(p), 1), rawBytes
}

// fillInstead lets fills leave out compressed shards whose decoded form is complete in the cache.
func (m *mount) fillInstead(k read.KeptShards) {
	for _, shard := range k.Shards {
		raw, how := k.Decoding(shard)
		id, ok := m.identity(raw)
		if s, o := m.leaf(raw); ok && s.cache != nil {
			s.cache.DecodedOf(o, diskcache.DecodedIdentity(id, raw.SizeBytes, how), k.DecodedBytes(shard))
		}
	}
}

func (m *mount) shelfConfig(k read.KeptShards, rawBytes int64) diskcache.ShelfConfig {
	return diskcache.ShelfConfig{
		Shards: k.Shards, NeedBytes: k.NeedBytes, AllBytes: k.AllBytes, RawBytes: rawBytes, MostTableBytes: k.MostTableBytes, DecodedBytes: k.DecodedBytes,
		Identify: func(shard int) (diskcache.Identity, bool) {
			o, how := k.Decoding(shard)
			id, ok := m.identity(o)
			return diskcache.DecodedIdentity(id, o.SizeBytes, how), ok
		},
	}
}

// plain presents shards that are all whole in the disk cache as objects that are not
// compressed, nil where not all are.
func (m *mount) plain(k read.KeptShards, decode func(shard int, write func([]byte) error) error) (*diskcache.Plain, error) {
	m.keeping.Lock()
	defer m.keeping.Unlock()
	c, err := m.cacheOfDecoded()
	if c == nil || err != nil {
		return nil, err
	}
	raw := func(shard int) storage.Object {
		o, _ := k.Decoding(shard)
		return o
	}
	plain := c.OpenPlain(m.shelfConfig(k, 0), raw, decode)
	if plain != nil {
		m.fillInstead(k)
		m.fitDecoded(c, k)
	}
	return plain, nil
}

// cacheOfDecoded returns the cache for decoded shards, nil where there is none. It is called
// with m.keeping held.
func (m *mount) cacheOfDecoded() (*diskcache.Storage, error) {
	c := &m.spec.Cache
	switch {
	case m.cache != nil:
		return m.cache, nil
	case m.decoded.Load() != nil:
		return m.decoded.Load(), nil
	case c.Off || c.Dir == "" && !sized(c):
		return nil, nil
	}
	err := m.opened.take(step{"decoded", func() (func() error, error) {
		cache, place, err := m.newCache(stays{m.files}, m.identity)
		if err != nil {
			return nil, err
		}
		m.place = place
		m.decoded.Store(cache)
		return cache.Close, nil
	}})
	return m.decoded.Load(), err
}

// stays is a storage that stays open: a cache of decoded shards reads nothing of it.
type stays struct{ storage.Storage }

func (stays) Close() error { return nil }

// identity names the bytes of an object of the dataset, or of a source of a mixture.
func (m *mount) identity(o storage.Object) (diskcache.Identity, bool) {
	switch s, o := m.leaf(o); {
	case s == nil:
		return diskcache.Identity{}, false
	case s.service != nil:
		return s.objectIdentity(o)
	default:
		return s.fileIdentity(o)
	}
}

// leaf returns the mount that an object of the dataset is read through, nil if there is none, and
// the object with its path there.
func (m *mount) leaf(o storage.Object) (*mount, storage.Object) {
	for _, s := range m.leaves() {
		if path, within := strings.CutPrefix(o.Path, s.prefix()); within {
			o.Path = path
			return s, o
		}
	}
	return nil, o
}

// warmEvery is how often Warm reports progress.
const warmEvery = 250 * time.Millisecond

// ErrNoCache means that there is no cache to fill.
var ErrNoCache = errors.New("there is no cache to fill: the dataset is on a disk of this machine, or --cache-size is off")

// Warm fills the disk cache with the missing parts of the dataset, waits until that is done, and
// reports progress now and then: how many bytes of how many are present. It fails if some could not
// be fetched (diskcache.ErrNotFilled), and with ctx's error; what was fetched until then stays. For
// a mixture it fills the caches of all sources that have one.
func (d *Dataset) Warm(ctx context.Context, progress func(done, total int64)) error {
	g, release := d.acquire()
	defer release()
	var caches []*diskcache.Storage
	for _, s := range d.mount.leaves() {
		if s.cache != nil {
			s.cache.Fill(s.own(g.objects()))
			caches = append(caches, s.cache)
		}
	}
	if caches == nil {
		return ErrNoCache
	}
	return waitForFill(ctx, caches, progress)
}

// own returns those of a dataset's objects that are this mount's, with their paths in it.
func (m *mount) own(all []storage.Object) (own []storage.Object) {
	for _, o := range all {
		if path, within := strings.CutPrefix(o.Path, m.prefix()); within {
			o.Path = path
			own = append(own, o)
		}
	}
	return own
}

// WarmRecords is Warm for what an epoch reads for its records from … to-1, of all workers together,
// in the order without a checkpoint: the chunks that contain them, but with a sample only the
// records themselves, and compressed shards whole. to is at most the number of the epoch's records.
func (d *Dataset) WarmRecords(ctx context.Context, epoch, from, to uint64, progress func(done, total int64)) error {
	c := d.mount.cache
	if c == nil {
		return ErrNoCache
	}
	g, release, err := d.holdEpoch(ctx, epoch)
	if err != nil {
		return err
	}
	defer release()
	ranges, err := g.rangesOf(ctx, epoch, from, to)
	if err != nil {
		return err
	}
	c.FillRanges(ranges)
	return waitForFill(ctx, []*diskcache.Storage{c}, progress)
}

func waitForFill(ctx context.Context, caches []*diskcache.Storage, progress func(done, total int64)) error {
	ended := make(chan error, len(caches))
	for _, c := range caches {
		c.PauseFill(false)
		go func() { ended <- c.Warm(ctx) }()
	}
	tell := func() {
		var done, total int64
		for _, c := range caches {
			d, t := c.Filled()
			done, total = done+d, total+t
		}
		progress(done, total)
	}
	tick := time.NewTicker(warmEvery)
	defer tick.Stop()
	var errs []error
	for len(errs) < len(caches) {
		select {
		case err := <-ended:
			errs = append(errs, err)
		case <-tick.C:
			tell()
		}
	}
	tell()
	return errors.Join(errs...)
}

// warmRecords is how many records are looked up at a time.
const warmRecords = 4096

// rangesOf returns the ranges of objects that contain records of an epoch, in dataset order.
func (g *generation) rangesOf(ctx context.Context, epoch, from, to uint64) ([]diskcache.Range, error) {
	e, err := g.epoch(epoch)
	if err != nil {
		return nil, err
	}
	if from > to || to > e.Len() {
		return nil, fmt.Errorf("records %d to %d: epoch %d has %d", from, to, epoch, e.Len())
	}
	defer e.Hold()()
	var wanted []catalog.Extent
	sampled := g.sampled()
	starts := g.catalog.ChunkStarts(g.spec.Order.ChunkBytes, g.spec.Order.ChunkRecords)
	seen := make([]bool, len(starts))
	numbers, extents := make([]uint64, warmRecords), make([]catalog.Extent, 2*warmRecords)
	cursor := e.Cursor(from)
	for at := from; at < to && ctx.Err() == nil; {
		n := cursor.Next(numbers[:min(warmRecords, to-at)])
		at += uint64(n)
		if sampled {
			g.catalog.Extents(numbers[:n], extents)
			wanted = append(wanted, extents[:n]...)
			continue
		}
		for _, number := range numbers[:n] {
			chunk := sort.Search(len(starts), func(i int) bool { return starts[i] > number }) - 1
			if seen[chunk] {
				continue
			}
			seen[chunk] = true
			// A chunk is in one shard, so it spans from its first to its last record.
			g.catalog.Extents([]uint64{starts[chunk], starts[chunk+1] - 1}, extents)
			x := extents[0]
			x.SizeBytes = extents[1].OffsetBytes + extents[1].SizeBytes - x.OffsetBytes
			wanted = append(wanted, x)
		}
	}
	sort.Slice(wanted, func(i, j int) bool {
		a, b := &wanted[i], &wanted[j]
		return a.Shard < b.Shard || a.Shard == b.Shard && a.OffsetBytes < b.OffsetBytes
	})
	var ranges []diskcache.Range
	last := -1 // shard
	for _, x := range wanted {
		s := g.catalog.Shard(x.Shard)
		if s.Codec != nil { // offsets in it are of decoded bytes
			x.OffsetBytes, x.SizeBytes = 0, s.Object.SizeBytes
		}
		end := x.OffsetBytes + x.SizeBytes
		if x.Shard == last {
			if r := &ranges[len(ranges)-1]; x.OffsetBytes <= r.OffsetBytes+r.SizeBytes+g.mount.profile.GapBytes {
				r.SizeBytes = max(r.SizeBytes, end-r.OffsetBytes)
				continue
			}
		}
		last = x.Shard
		ranges = append(ranges, diskcache.Range{Object: s.Object, OffsetBytes: x.OffsetBytes, SizeBytes: x.SizeBytes})
	}
	return ranges, ctx.Err()
}
