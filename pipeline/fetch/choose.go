package fetch

import (
	"errors"
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/fetch/spool"
	"github.com/lsiofs/lsiofs/pipeline/fetch/strategy"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Choice is how the shards of a dataset are read, and why.
type Choice = strategy.Choice

// Choose decides how shards are read where a strategy is asked for ("" for
// scan), from the catalog and the settings alone. It makes no spool.
func (f *Fetcher) Choose(asked spec.Read) (Choice, error) {
	s := f.sizes()
	s.Shards = f.surveyShards()
	return s.Choose(asked)
}

// sizes are what a choice goes by, but for the shards.
func (f *Fetcher) sizes() strategy.Sizes {
	c := &f.config
	return strategy.Sizes{
		MemoryBytes: c.MemoryBytes, PieceBytes: c.PieceBytes, PieceRecords: c.PieceRecords, Decoders: c.Decoders,
		Order: c.Order, Places: c.Spool.Places, MaxSpoolBytes: c.Spool.MaxBytes, Storage: c.Storage,
		Limits: f.limits, Held: f.held, Compressed: f.wanted != nil,
	}
}

// surveyShards looks at all shards.
func (f *Fetcher) surveyShards() []strategy.Shard {
	shards := make([]strategy.Shard, f.index.Shards())
	for i := range shards {
		s := f.index.Shard(i)
		shards[i] = strategy.Shard{
			DecodedBytes: s.DecodedBytes, Records: s.Records, Wanted: f.recordsOf(s),
			EntryPoints: s.EntryPoints, Members: s.Members, Compressed: s.Codec != nil, Parts: s.Parts,
		}
	}
	return shards
}

// surveyHeld looks at the shards and pieces in use. What lies between records of the
// part is mostly read with them.
func (f *Fetcher) surveyHeld() strategy.Held {
	var h strategy.Held
	for i := range f.index.Shards() {
		if s := f.index.Shard(i); f.recordsOf(s) > 0 {
			h.Shards++
			h.Bytes += s.DecodedBytes
			h.Records += s.Records
			if s.Codec != nil {
				h.Packed++
				h.DecoderBytes = max(h.DecoderBytes, strategy.DecoderBytesOf(s.Codec.Name(), s.DecodedBytes, s.Members))
			}
		}
	}
	for piece := range f.pieces.Len() {
		if f.wants(piece) {
			h.Pieces++
			h.TableBytes += tableBytes(f.pieces.Records(piece))
		}
	}
	return h
}

// chooseStrategy chooses, and opens the file of a spool where there is to be one. A spool that
// can't be is an error: scanning would decode shards again and again, which
// nobody should find out about by waiting.
func (f *Fetcher) chooseStrategy() (file *spool.File, err error) {
	c, err := f.Choose(f.config.Read)
	if err == nil && c.Spooled != nil {
		file, err = f.openSpoolFile(&c)
	}
	if err != nil {
		if c.FewerLanes != "" {
			err = fmt.Errorf("%w (%s)", err, c.FewerLanes)
		}
		return nil, fmt.Errorf("--read %s: %w; fewer --lanes, a smaller --shuffle-size or more --memory need less, and --read scan needs none but decodes shards again and again", f.config.Read, err)
	}
	f.choice = c
	return file, nil
}

func (f *Fetcher) openSpoolFile(c *Choice) (*spool.File, error) {
	if f.config.Spool.Dir == "" {
		return nil, fmt.Errorf("%s are to be spooled, and there is no directory for that: name one with --spool-dir", humanize.IBytes(uint64(c.SpoolBytes)))
	}
	if f.config.Spool.Engine == nil {
		return nil, errors.New("there is no engine to read the spool with")
	}
	return spool.OpenFile(f.config.Spool.Dir, c.SpoolBytes)
}
