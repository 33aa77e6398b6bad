package pipeline

import (
	"context"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/listing"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// CropsForecast is the cost of crops of Zarr arrays: how many chunks (Zarr's chunks) are decoded
// for them, in the spec's order and in others. It covers the first records of the spec's epoch, for
// one reader that has all the memory for decoded chunks to itself.
type CropsForecast struct {
	Records     uint64 // records examined
	RecordBytes int64
	MemoryBytes int64 // for decoded chunks
	Fields      []CropsField
	// ChunksWanted is the number of stored chunks that a crop touches, and WantedBytes their
	// decoded size; both are means.
	ChunksWanted float64
	WantedBytes  float64
	Orders       []CropsOrder // the spec's first
}

// CropsField is an array of the first cube.
type CropsField struct {
	Name, Path, Descr string
	// ComputedOf describes the stored elements if the delivered ones are computed from them; ""
	// otherwise.
	ComputedOf        string
	Dims              []string // "" for a dimension without a name
	Shape, Crop, Step []int64
	Chunk, Object     []int64
	Codecs            []string
	ChunkBytes        int64
	Objects, Stored   int64     // in all cubes, and how many of them exist
	DecodedAlong      []float64 // elements decoded along each dimension, per element of the crop
	IgnoredFiles      int64
}

// CropsOrder is what is decoded in an order.
type CropsOrder struct {
	Shuffle spec.Shuffle
	InUse   bool
	// Chunks is the number of chunks decoded per crop, whole or in part, and Bytes what is decoded
	// of them: nothing of chunks that are stored uncompressed.
	Chunks, Bytes float64
	// OnceBytes is the least memory for decoded chunks with which nearly all of them (19 in 20) are
	// decoded only once, if the least recently used ones are evicted.
	OnceBytes int64
}

// Bounds on what is examined: a fraction of a second of work per order.
const (
	forecastRecords = 16384
	forecastWants   = 1 << 21
)

// ForecastCrops forecasts the cost of crops; nil if records are not crops. What is decoded is the
// result of a dry run of each order, which reads sizes of chunks but no data (crops.Dry).
func (d *Dataset) ForecastCrops(ctx context.Context) (*CropsForecast, error) {
	g, release := d.acquire()
	defer release()
	if g.cubes == nil {
		return nil, nil
	}
	return g.forecastCrops(ctx)
}

func (g *generation) forecastCrops(ctx context.Context) (*CropsForecast, error) {
	f := &CropsForecast{RecordBytes: g.cubes[0].Cut.Row().Bytes}
	for _, m := range g.mount.cropMounts() {
		f.MemoryBytes += m.crops.MostHeldBytes()
	}
	if err := f.fields(g.cubes); err != nil {
		return nil, err
	}
	asked := g.spec.Order
	tried := []spec.Order{asked}
	for _, s := range []spec.Shuffle{spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone} {
		o := asked
		if o.Shuffle = s; s == spec.ShuffleBlock {
			o = spec.ZarrOrder(asked)
		}
		if s != asked.Shuffle {
			tried = append(tried, o)
		}
	}
	for i, o := range tried {
		u, err := g.usesOf(ctx, o)
		if err != nil {
			return nil, err
		}
		wants, wantedBytes, once := u.sum()
		dry, err := g.dryRunIn(ctx, o, u.records)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			f.Records, f.ChunksWanted, f.WantedBytes = u.records, u.mean(wants), u.mean(uint64(wantedBytes))
			f.along(u)
		}
		f.Orders = append(f.Orders, CropsOrder{Shuffle: o.Shuffle, InUse: i == 0, Chunks: u.mean(dry.Chunks), Bytes: u.mean(uint64(dry.DecodedBytes)), OnceBytes: once})
	}
	return f, nil
}

// fields fills in the properties of the arrays.
func (f *CropsForecast) fields(cubes []*listing.Grid) error {
	first := cubes[0]
	crops, _, err := zarr.FieldsOf(first.Cut.Kind())
	if err != nil {
		return err
	}
	for k := range first.Fields {
		x, a := first.Cut.Field(k), first.Fields[k].Array
		c := first.Cut.NewCrop(k)
		field := CropsField{
			Name: x.Name, Path: x.Path, Descr: a.Type.Descr, Dims: namesOf(a.Dims, len(a.Shape)), Shape: a.Shape, Crop: crops[k].Crop, Step: c.Step,
			Chunk: a.Chunk, Object: a.Object, Codecs: codecNames(a), ChunkBytes: a.ChunkBytes(),
		}
		if p := first.Cut.Packing(k); p != nil {
			field.Descr, field.ComputedOf = first.Cut.Type(k).Descr, packingText(p)
		}
		for _, c := range cubes {
			field.Objects += c.Fields[k].Array.Objects().Total()
			field.Stored += c.Fields[k].Present()
			field.IgnoredFiles += c.Fields[k].Ignored()
		}
		f.Fields = append(f.Fields, field)
	}
	return nil
}

// along fills in what is decoded along each dimension.
func (f *CropsForecast) along(u *orderUses) {
	for k := range f.Fields {
		x := &f.Fields[k]
		for d, n := range u.along[k] {
			x.DecodedAlong = append(x.DecodedAlong, u.mean(n)*float64(x.Chunk[d])/float64(max(x.Crop[d], 1)))
		}
	}
}

// epochIn returns the spec's epoch in an order with other settings.
func (g *generation) epochIn(o spec.Order) (*order.Epoch, error) {
	if g.mixing == nil {
		return order.NewEpoch(o, g.spec.Epoch, g.chunkStarts(o.ChunkBytes, o.ChunkRecords), g.part)
	}
	m, err := g.mixing.otherOrder(o, g.catalog.ChunkStarts(o.ChunkBytes, o.ChunkRecords))
	if err != nil {
		return nil, err
	}
	return m.Epoch(g.spec.Epoch)
}

// viewIn returns the view of one reader of the spec's epoch in an order.
func (g *generation) viewIn(o spec.Order) (*order.View, error) {
	e, err := g.epochIn(o)
	if err != nil {
		return nil, err
	}
	return order.NewView(e, nil, spec.Assignment{Workers: 1, Batch: o.Batch, Dealing: spec.DealInterleaved, Tail: spec.TailKeep})
}

// dryRunIn runs dry through the first records of an order.
func (g *generation) dryRunIn(ctx context.Context, o spec.Order, records uint64) (f read.Forecast, err error) {
	v, err := g.viewIn(o)
	if err != nil {
		return f, err
	}
	choice, err := g.survey.Choose(g.strategy())
	if err != nil {
		return f, err
	}
	e := v.Epoch()
	return g.survey.DryRun(ctx, workerSequence{v, 0}, read.Subset{Number: e.Phase(), Part: e.Part()}, records, choice)
}

// usesOf goes through the first records of an order.
func (g *generation) usesOf(ctx context.Context, o spec.Order) (*orderUses, error) {
	v, err := g.viewIn(o)
	if err != nil {
		return nil, err
	}
	w := newWanter(g)
	records, extents := make([]uint64, 256), make([]catalog.Extent, 256)
	for k := uint64(0); k < forecastRecords && w.wants < forecastWants; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m := v.Records(0, k, records)
		if m == 0 {
			break
		}
		g.catalog.Extents(records[:m], extents[:m])
		for _, x := range extents[:m] {
			w.record(x.Shard, x.Ordinal)
		}
		k += uint64(m)
	}
	return w.uses, nil
}

// wanter finds the chunks that records need.
type wanter struct {
	g     *generation
	at    *locator
	crops map[int][]*zarr.Crop // by cube
	uses  *orderUses
	wants int              // uses so far
	seen  []map[int64]bool // indices of a crop's chunks along each dimension
}

func newWanter(g *generation) *wanter {
	w := &wanter{g: g, at: &locator{cubes: g.cubes, seed: g.spec.Order.Seed, spots: map[int]*placed{}}, crops: map[int][]*zarr.Crop{}, uses: &orderUses{}}
	for _, f := range g.cubes[0].Fields {
		w.uses.along = append(w.uses.along, make([]uint64, len(f.Array.Shape)))
	}
	of := map[*mount]*chunkUses{}
	for _, m := range g.mount.cropMounts() {
		of[m] = newChunkUses()
		w.uses.storages = append(w.uses.storages, of[m])
	}
	for _, c := range g.listed {
		w.uses.ofCube = append(w.uses.ofCube, of[c.mount])
	}
	return w
}

// record adds the chunks of a record.
func (w *wanter) record(shard int, ordinal uint64) {
	c := w.g.cubes[shard]
	crops := w.crops[shard]
	if crops == nil {
		for k := range c.Fields {
			crops = append(crops, c.Cut.NewCrop(k))
		}
		w.crops[shard] = crops
	}
	w.uses.records++
	spot := w.at.locate(shard, ordinal, w.g.spec.Epoch)
	for k := range c.Fields {
		c.Cut.Place(k, crops[k], spot)
		w.field(shard, k, crops[k])
	}
}

func (w *wanter) field(shard, k int, crop *zarr.Crop) {
	f := &w.g.cubes[shard].Fields[k]
	a := f.Array
	chunks, objects := a.Chunks(), a.Objects()
	object := make([]int64, len(a.Shape))
	w.seen = w.seen[:0]
	for range a.Shape {
		w.seen = append(w.seen, map[int64]bool{})
	}
	_ = crop.Parts(a.Shape, a.Chunk, func(p *zarr.Part) error {
		for d, n := range p.Chunk {
			if !w.seen[d][n] {
				w.seen[d][n] = true
				w.uses.along[k][d]++
			}
		}
		a.ObjectOf(object, p.Chunk)
		if f.Has(objects.Number(object)) {
			w.uses.ofCube[shard].add(chunkUse{shard, k, chunks.Number(p.Chunk)}, a.ChunkBytes())
			w.wants++
		}
		return nil
	})
}

// orderUses are the uses of chunks by the first records of an order.
type orderUses struct {
	records  uint64
	along    [][]uint64   // chunks along each dimension of each field, summed over all records
	storages []*chunkUses // one, or one for each source of a mixture, which has memory of its own
	ofCube   []*chunkUses // the uses of each cube's storage
}

// sum adds up the storages: chunks wanted and their size, and the memory with which nearly all
// chunks are decoded only once.
func (u *orderUses) sum() (wants uint64, wantedBytes, once int64) {
	for _, s := range u.storages {
		wants += s.wants
		wantedBytes += s.wantedBytes
		once += s.once()
	}
	return wants, wantedBytes, once
}

func (u *orderUses) mean(n uint64) float64 { return float64(n) / float64(max(u.records, 1)) }

// chunkUse identifies a chunk.
type chunkUse struct {
	cube, field int
	chunk       int64
}

// chunkUses records the sequence of chunk uses. For each repeated use of a chunk it keeps the size
// of what was used in between: the chunk is still in an LRU memory if that and the chunk itself
// fit.
type chunkUses struct {
	wants       uint64
	wantedBytes int64

	last     map[chunkUse]int
	sizes    []int64 // at the last use of each chunk its size, otherwise 0; stored as the partial sums of a Fenwick tree
	distinct uint64
	again    []int64 // for each use that is not a chunk's first: the memory with which it is still there
}

func newChunkUses() *chunkUses {
	return &chunkUses{last: map[chunkUse]int{}, sizes: []int64{0}}
}

// add records the next use.
func (u *chunkUses) add(b chunkUse, bytes int64) {
	u.wants++
	u.wantedBytes += bytes
	now := len(u.sizes)
	// The new node of the tree holds the sum of the run that ends there.
	sum := int64(0)
	for i, end := now-1, now-now&-now; i > end; i -= i & -i {
		sum += u.sizes[i]
	}
	u.sizes = append(u.sizes, sum)
	before, used := u.last[b]
	if used {
		u.again = append(u.again, u.upTo(now)-u.upTo(before-1))
		u.change(before, -bytes)
	} else {
		u.distinct++
	}
	u.change(now, bytes)
	u.last[b] = now
}

func (u *chunkUses) upTo(i int) (sum int64) {
	for ; i > 0; i -= i & -i {
		sum += u.sizes[i]
	}
	return sum
}

func (u *chunkUses) change(i int, bytes int64) {
	for ; i < len(u.sizes); i += i & -i {
		u.sizes[i] += bytes
	}
}

// once is the least memory with which nearly all chunks are decoded only once.
func (u *chunkUses) once() int64 {
	memory := slices.Clone(u.again)
	slices.Sort(memory)
	n := len(memory) - int(u.distinct/20)
	if n <= 0 {
		return 0
	}
	return memory[n-1]
}
