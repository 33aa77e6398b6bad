package pipeline

import (
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

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
	return c.NewShelf(m.shelfConfig(k, m.fitDecoded(c, k)))
}

// fitDecoded gives a cache room for decoded shards, where its size is automatic, and returns
// what others of the dataset need. It is called with m.keeping held.
func (m *mount) fitDecoded(c *diskcache.Storage, k read.KeptShards) (rawBytes int64) {
	p := m.place
	p.DatasetBytes, p.Objects, p.OpenBytes = m.fitted.DatasetBytes, m.fitted.Objects, m.fitted.OpenBytes
	rawBytes = p.NeedBytes()
	p.DatasetBytes += k.AllBytes
	p.Objects += int64(len(k.Shards))
	p.OpenBytes += k.NeedBytes
	c.SetBound(max(cacheSize(&m.spec.Cache).Bound(p), 1))
	return rawBytes
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
	for _, s := range m.leaves() {
		path, within := strings.CutPrefix(o.Path, s.prefix())
		switch o.Path = path; {
		case !within:
		case s.service != nil:
			return s.objectIdentity(o)
		default:
			return s.fileIdentity(o)
		}
	}
	return diskcache.Identity{}, false
}
