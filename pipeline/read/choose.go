package read

import (
	"errors"
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Choice is how the shards of a dataset are read, and why.
type Choice = choose.Choice

// Choose decides how shards are read where a strategy is asked for ("" for
// scan), from the catalog and the settings alone. It makes no spool.
func (f *Fetcher) Choose(asked spec.Read) (Choice, error) {
	s := f.survey.Sizes()
	return s.Choose(asked)
}

// chooseStrategy chooses, and makes the shelf of a spool where there is to be one. A spool that
// can't be is an error: scanning would decode shards again and again, which
// nobody should find out about by waiting.
func (f *Fetcher) chooseStrategy() (shelf *diskcache.Shelf, err error) {
	c, err := f.Choose(f.config.Read)
	if err != nil && f.spoolIsShared() {
		f.config.Log.Warn("shards are decoded again and again, because other streams use the room of --spool-max while they are read", "reason", err)
		c, err = f.Choose(spec.ReadScan)
	}
	if err == nil && c.Spooled != nil {
		shelf, err = f.openShelf(&c)
	}
	if err != nil {
		if c.FewerLanes != "" {
			err = fmt.Errorf("%w (%s)", err, c.FewerLanes)
		}
		return nil, fmt.Errorf("--read %s: %w; fewer --lanes, a smaller --shuffle-size or more --memory need less, and --read scan needs none but decodes shards again and again", f.config.Read, err)
	}
	f.choice = c
	if c.Warning != "" {
		f.config.Log.Warn("each record is read by itself: "+c.Warning, "dataset", f.survey.Held.AllBytes())
	}
	return shelf, nil
}

// openShelf makes the shelf that decoded shards are kept on.
func (f *Fetcher) openShelf(c *Choice) (*diskcache.Shelf, error) {
	if f.config.Spool.Dir == "" {
		return nil, fmt.Errorf("%s have to be spooled, and there is no directory for that: name one with --spool-dir", humanize.IBytes(uint64(c.SpoolBytes)))
	}
	if f.config.Spool.Engine == nil {
		return nil, errors.New("there is no engine to read the spool with")
	}
	reserve := func(bytes int64) bool { return f.share.TakeDisk(bytes, f.config.Spool.MaxBytes) }
	if !reserve(c.SpoolBytes) {
		return nil, fmt.Errorf("another spool has taken the room of --spool-max (%s) meanwhile: try again", humanize.IBytes(uint64(f.config.Spool.MaxBytes)))
	}
	shelf, err := diskcache.NewSpool(f.config.Spool.Dir, c.SpoolBytes, f.config.MemoryBytes/spoolTablesPart, f.config.Spool.Engine, reserve)
	if err != nil {
		reserve(-c.SpoolBytes)
	}
	return shelf, err
}

// spoolTablesPart is which part of the memory the sums of spooled pages take at most: the sums
// of decoded shards of 64 times the memory do.
const spoolTablesPart = 16

// spoolBytes bounds the spool, 0 for what the order needs: what others have left of
// SpoolConfig.MaxBytes, having given up what they do not need now.
func (f *Fetcher) spoolBytes() int64 {
	most := f.config.Spool.MaxBytes
	left := f.share.DiskLeft(most)
	if most == 0 {
		return 0
	}
	return max(left, 1)
}

// spoolIsShared says that others have some of SpoolConfig.MaxBytes.
func (f *Fetcher) spoolIsShared() bool {
	return f.survey.Settings.MaxSpoolBytes < f.config.Spool.MaxBytes
}
