package fetch

import (
	"errors"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/fetch/gather"
	"github.com/lsiofs/lsiofs/pipeline/fetch/scan"
	"github.com/lsiofs/lsiofs/pipeline/fetch/spool"
	"github.com/lsiofs/lsiofs/pipeline/fetch/strategy"
	"github.com/lsiofs/lsiofs/pipeline/fetch/survey"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// index is what a fetcher needs of a catalog.
type index interface {
	survey.Index
	scan.Index
	Unpacker() unpack.Format
}

var _ index = (*catalog.Catalog)(nil)

// Fetcher gives the records of one dataset to any number of readers, within one memory
// budget. It is safe for concurrent use.
type Fetcher struct {
	index    index
	storage  storage.Storage
	config   Config
	verifier unpack.Verifier // nil when records carry no checksums
	survey   *survey.Survey
	choice   Choice
	scanning scan.Config // of the scanner, or of one that forecasts
	meter    *meter.Meter

	// One of the two reads.
	scanner      *scan.Scanner
	gatherer     *gather.Gatherer
	gatherMemory *budget.Blocks

	mu       sync.Mutex // taken last: rooms note failures with their locks held
	failures failures
	closed   bool
}

// New starts a fetcher. The catalog and the storage stay the caller's.
func New(c *catalog.Catalog, s storage.Storage, cfg Config) (*Fetcher, error) {
	return newFetcher(c, s, cfg)
}

func newFetcher(x index, s storage.Storage, cfg Config) (*Fetcher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	f := &Fetcher{index: x, storage: s, config: cfg, meter: cfg.Meter}
	f.verifier, _ = x.Unpacker().(unpack.Verifier)
	room := int64(0)
	if keeper, is := s.(storage.Keeper); is {
		room = max(keeper.RoomBytes(), 0)
	}
	v, err := survey.New(x, cfg.Part, survey.Settings{
		MemoryBytes: cfg.MemoryBytes, PieceBytes: cfg.PieceBytes, PieceRecords: cfg.PieceRecords, Decoders: cfg.Decoders,
		Order: cfg.Order, Places: cfg.Spool.Places, MaxSpoolBytes: cfg.Spool.MaxBytes, Storage: cfg.Storage,
		CacheRoomBytes: room, LookaheadBytes: cfg.LookaheadBytes,
	})
	if err != nil {
		return nil, err
	}
	f.survey = v
	file, err := f.chooseStrategy()
	if err != nil {
		return nil, err
	}
	if err := f.startRoom(file); err != nil {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
		return nil, err
	}
	return f, nil
}

// startRoom starts the room that reads as was chosen; the file of a spool is its own,
// once there is no error.
func (f *Fetcher) startRoom(file *spool.File) (err error) {
	c := &f.config
	if file != nil && c.Order.Shuffle == spec.ShuffleFull {
		// A record at a time is wanted of a piece: let it bring little else.
		if f.survey, err = f.survey.WithPieces(f.choice.FinePieceBytes(c.MemoryBytes, c.PieceBytes)); err != nil {
			return err
		}
	}
	f.scanning = f.scanConfig()
	plan := f.planning()
	if f.choice.Strategy == spec.ReadGather {
		f.gatherMemory = budget.NewBlocks(f.survey.Limits.CacheBytes)
		f.gatherMemory.Released = c.released
		g := f.gatherConfig(f.gatherMemory)
		g.Told = plan
		f.gatherer, err = gather.New(g)
		return err
	}
	f.scanning.Spool, f.scanning.Plan = file, plan
	f.scanner, err = scan.New(f.scanning)
	return err
}

func (f *Fetcher) scanConfig() scan.Config {
	c, v := &f.config, f.survey
	sizes := v.Sizes()
	s := scan.Config{
		Index: f.index, Storage: f.storage, Places: v.Places, Verifier: f.verifier,
		Sampled: c.Order.Sample.Or() != (spec.Sample{}), Phase: c.Phase,
		MemoryBytes: c.MemoryBytes, Limits: v.Limits, Held: v.Held, HoldsAll: v.Compressed && sizes.Fits(),
		Choice: f.choice, SpoolEngine: c.Spool.Engine,
		Decoders: c.Decoders, LookaheadRecords: c.LookaheadRecords, ReadTimeout: c.ReadTimeout, Profile: c.Storage,
		Meter: f.meter, Log: c.Log, Note: f.note, Released: c.released,
	}
	if f.choice.Strategy == spec.ReadSpool {
		s.Limits.RawBlockBytes = strategy.SpoolRawBytes(s.Limits, c.MemoryBytes, c.Storage)
	}
	s.MostWanted, s.Sweeps = sizes.Lookahead(f.choice)
	return s
}

// gatherConfig is for memory of the fetcher's budget.
func (f *Fetcher) gatherConfig(memory *budget.Blocks) gather.Config {
	reads := f.config.Storage
	if f.choice.Chunks {
		reads = profile.Defaults(profile.KindVirtual) // a local disk, which has what is planned
	}
	return gather.Config{
		Index: f.index, Storage: f.storage, Memory: memory, Plan: PlanConfig(reads), Ahead: reads.Ahead,
		ReadTimeout: f.config.ReadTimeout, Verifier: f.verifier, Meter: f.meter, Note: f.note,
	}
}

// Meter is what counts where the fetcher's time goes.
func (f *Fetcher) Meter() *meter.Meter { return f.meter }

// Close stops reading ahead, waits for what is under way and frees the memory.
// No Loan may be out and no Reader in use. It is idempotent.
func (f *Fetcher) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	f.mu.Unlock()
	if f.scanner != nil {
		return f.scanner.Close()
	}
	f.gatherer.Close()
	return f.gatherMemory.Close()
}
