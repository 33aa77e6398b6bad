package read

import (
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/scan"
	"github.com/lsiofs/lsiofs/pipeline/read/size"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// index is what a fetcher needs from a catalog.
type index interface {
	size.Index
	scan.Index
	Unpacker() format.Format
}

var _ index = (*catalog.Catalog)(nil)

// Survey is a dataset before it is read: its sizes, from which the ways to read it follow. It holds
// neither memory for records nor room on a disk; NewFetcher takes these. It is immutable and safe
// for concurrent use.
type Survey struct {
	index   index
	storage storage.Storage
	caps    storage.Caps // of storage
	config  Config
	sizes   *size.Survey
	meter   *meter.Meter
}

// NewSurvey surveys a dataset. It reads nothing. The caller keeps ownership of the catalog and the
// storage.
func NewSurvey(c *catalog.Catalog, s storage.Storage, cfg Config) (*Survey, error) {
	return newSurvey(c, s, cfg)
}

func newSurvey(x index, s storage.Storage, cfg Config) (*Survey, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	v := &Survey{index: x, storage: s, caps: s.Caps(), config: cfg, meter: cfg.Meter}
	return v, v.look(cfg.Spool.MaxBytes)
}

// look computes the dataset's sizes, for a spool of at most that many bytes, 0 for what the order
// needs.
func (s *Survey) look(maxSpoolBytes int64) (err error) {
	cfg, room := &s.config, int64(0)
	if keeper := s.caps.Keeper; keeper != nil {
		room = max(keeper.RoomBytes(), 0)
	}
	s.sizes, err = size.New(s.index, cfg.Part, size.Settings{
		MemoryBytes: cfg.MemoryBytes, PieceBytes: cfg.PieceBytes, PieceRecords: cfg.PieceRecords, Decoders: cfg.Decoders,
		Order: cfg.Order, Places: cfg.Spool.Places, MaxSpoolBytes: maxSpoolBytes, Storage: cfg.Storage,
		CacheRoomBytes: room, LookaheadBytes: cfg.LookaheadBytes,
	})
	return err
}

// Choose returns how shards are read with the given strategy ("" for scan), from the catalog and
// the settings alone. It makes no spool.
func (s *Survey) Choose(asked spec.Read) (Choice, error) {
	sizes := s.sizes.Sizes()
	return sizes.Choose(asked)
}

// Needs returns what an epoch of the dataset needs, from the catalog and the settings alone.
func (s *Survey) Needs() Needs {
	sizes := s.sizes.Sizes()
	return sizes.Needs()
}

// ReserveCache reserves the part of a disk cache through which data will pass while the dataset is
// read, so that filling the cache leaves room for it. A fetcher reserves what it needs by itself.
func (s *Survey) ReserveCache() {
	keeper := s.caps.Keeper
	if keeper == nil || s.caps.Planner == nil {
		return
	}
	how, err := s.Choose(s.config.Read)
	if err != nil {
		how = Choice{Strategy: spec.ReadScan}
	}
	sizes := s.sizes.Sizes()
	keeper.SetShare(sizes.Share(how))
}

// Meter returns the meter of where the time of fetchers goes.
func (s *Survey) Meter() *meter.Meter { return s.meter }
