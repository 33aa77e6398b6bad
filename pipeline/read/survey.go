package read

import (
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Survey is a dataset before it is read: its sizes, from which the ways to read it follow. It holds
// neither memory for records nor room on a disk; NewFetcher takes these. It is immutable and safe
// for concurrent use.
type Survey struct {
	// o has Survey and Choice of a Fetcher, with finer pieces than sizes if the choice requires them.
	o     Options
	sizes *choose.Survey
	plain bool // the shards are compressed, and read from the disk cache, which has them decoded
}

// NewSurvey surveys a dataset. It reads nothing. The caller keeps ownership of the catalog and the
// storage.
func NewSurvey(c *catalog.Catalog, s storage.Storage, o Options) (*Survey, error) {
	return newSurvey(c, s, o)
}

func newSurvey(x chunkmap.Index, s storage.Storage, o Options) (*Survey, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.SetDefaults()
	o.SetInput(x, s)
	v := &Survey{o: o}
	return v, v.look(o.Spool.MaxBytes)
}

// look computes the dataset's sizes, for a spool of at most that many bytes, 0 for what the order
// needs.
func (s *Survey) look(maxSpoolBytes int64) error {
	room := int64(0)
	if hints := s.o.Caps.Hints; hints != nil {
		room = max(hints.Use().RoomBytes, 0)
	}
	err := s.o.LookAtSizes(maxSpoolBytes, room)
	s.sizes = s.o.Survey
	return err
}

// Choose returns how shards are read with the given strategy ("" for scan), from the catalog and
// the settings alone. It makes no spool.
func (s *Survey) Choose(asked spec.Read) (Choice, error) {
	sizes := s.sizes.Sizes()
	c, err := sizes.Choose(asked)
	if s.plain {
		c.Reason = plainReason + "; " + strings.TrimPrefix(c.Reason, "no shard is compressed, and ")
	}
	return c, err
}

// Needs returns what an epoch of the dataset needs, from the catalog and the settings alone.
func (s *Survey) Needs() Needs {
	sizes := s.sizes.Sizes()
	return sizes.Needs()
}

// ReserveCache reserves the part of a disk cache through which data will pass while the dataset is
// read, so that filling the cache leaves room for it. A fetcher reserves what it needs by itself.
func (s *Survey) ReserveCache() {
	hints := s.o.Caps.Hints
	if hints == nil || !hints.Use().Keeps {
		return
	}
	how, err := s.Choose(s.o.Read)
	if err != nil {
		how = Choice{Strategy: spec.ReadScan}
	}
	sizes := s.sizes.Sizes()
	hints.SetShare(sizes.Share(how))
}

// Meter returns the meter of where the time of fetchers goes.
func (s *Survey) Meter() *meter.Meter { return s.o.Meter }
