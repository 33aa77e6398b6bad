package read

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Choice is how the shards of a dataset are read, and why.
type Choice = choose.Choice

// chooseStrategy sets the choice, and makes the shelf of a spool if it has one. A spool that can't
// be made is an error: a scan would decode shards again and again, which users should not have to
// find out by waiting.
func (f *Fetcher) chooseStrategy() (shelf *diskcache.Shelf, err error) {
	c, err := f.Choose(f.o.Read)
	if err != nil && f.spoolIsShared() {
		f.o.Log.Warn("shards are decoded again and again, because other streams use the room of --spool-max while they are read", "reason", err)
		c, err = f.Choose(spec.ReadScan)
	}
	if err == nil && c.Spooled != nil {
		shelf, err = f.openShelf(&c)
	}
	if err != nil {
		if c.FewerLanes != "" {
			err = fmt.Errorf("%w (%s)", err, c.FewerLanes)
		}
		return nil, fmt.Errorf("--read %s: %w; fewer --lanes, a smaller --shuffle-size or more --memory need less, and --read scan needs none but decodes shards again and again", f.o.Read, err)
	}
	f.o.Choice = c
	if c.Warning != "" {
		f.o.Log.Warn("each record is read by itself: "+c.Warning, "dataset", f.o.Survey.Held.AllBytes())
	}
	return shelf, nil
}

// openShelf makes the shelf that decoded shards are kept on.
func (f *Fetcher) openShelf(c *Choice) (*diskcache.Shelf, error) {
	if keep := f.o.Spool.Keep; keep != nil {
		shelf, err := keep(f.keptShards(c))
		if shelf != nil {
			return shelf, nil
		} else if err != nil {
			f.o.Log.Warn("decoded shards are not kept in the disk cache, so the next mount decodes them again", "reason", err)
		}
	}
	if f.o.Spool.Dir == "" {
		return nil, fmt.Errorf("%s have to be spooled, and there is no directory for that: name one with --spool-dir", humanize.IBytes(uint64(c.SpoolBytes)))
	}
	if f.o.Spool.Engine == nil {
		return nil, errors.New("there is no engine to read the spool with")
	}
	reserve := func(bytes int64) bool { return f.share.TakeDisk(bytes, f.o.Spool.MaxBytes) }
	if !reserve(c.SpoolBytes) {
		return nil, fmt.Errorf("another spool has taken the room of --spool-max (%s) meanwhile: try again", humanize.IBytes(uint64(f.o.Spool.MaxBytes)))
	}
	shelf, err := diskcache.NewSpool(f.o.Spool.Dir, c.SpoolBytes, f.o.MemoryBytes/spoolTablesPart, f.o.Spool.Engine, reserve)
	if err != nil {
		reserve(-c.SpoolBytes)
	}
	return shelf, err
}

// keptShards describes the shards that a choice spools.
func (s *Survey) keptShards(c *Choice) KeptShards {
	k := KeptShards{NeedBytes: c.SpoolBytes, MostTableBytes: s.o.MemoryBytes / spoolTablesPart, Decoding: s.decoding}
	k.DecodedBytes = func(shard int) int64 { return s.o.Index.Shard(shard).DecodedBytes }
	for i := range s.o.Index.Shards() {
		if c.Spools(i) {
			k.Shards = append(k.Shards, i)
			k.AllBytes += diskcache.RoomBytes(k.DecodedBytes(i))
		}
	}
	return k
}

// decoding returns a shard's object, and what else its decoded bytes depend on: the codec, and the
// parts if the shard consists of parts.
func (s *Survey) decoding(shard int) (raw storage.Object, how string) {
	x := s.o.Index.Shard(shard)
	how = x.Codec.Name() + "/1"
	if !x.Parts {
		return x.Object, how
	}
	h := xxh3.New()
	for at := int64(0); at < x.DecodedBytes; {
		p := s.o.Index.Part(shard, at)
		_ = binary.Write(h, binary.LittleEndian, p) // a hash never fails
		at = max(p.EndBytes, at+1)
	}
	return x.Object, fmt.Sprintf("%s parts:%016x", how, h.Sum64())
}

// spoolTablesPart is the fraction of memory, 1/16, that checksums of spooled pages may take: enough
// for decoded shards of 64 times the memory.
const spoolTablesPart = 16

// spoolBytes returns the limit of the spool, 0 for what the order needs: what other fetchers leave
// of Options.Spool.MaxBytes, after giving up what they do not need now.
func (f *Fetcher) spoolBytes() int64 {
	most := f.o.Spool.MaxBytes
	left := f.share.DiskLeft(most)
	if most == 0 {
		return 0
	}
	return max(left, 1)
}

// spoolIsShared reports whether other fetchers use some of Options.Spool.MaxBytes.
func (f *Fetcher) spoolIsShared() bool {
	return f.o.Survey.Settings.MaxSpoolBytes < f.o.Spool.MaxBytes
}
