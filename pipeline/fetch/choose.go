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
	s := f.survey.Sizes()
	return s.Choose(asked)
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
	if c.Warning != "" {
		f.config.Log.Warn("each record is read by itself: "+c.Warning, "dataset", f.survey.Held.AllBytes())
	}
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
