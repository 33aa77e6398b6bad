package pipeline

import (
	"context"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/cubes"
	"github.com/lsiofs/lsiofs/pipeline/storage/cubes/listing"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// CropsForecast is what crops of Zarr arrays take: how many bricks (Zarr's chunks) are decoded for
// them, in the order of the spec and in others. It is of the first records of the spec's epoch, of
// one reader that gets the memory of decoded bricks alone.
type CropsForecast struct {
	Records     uint64 // that were looked at
	RecordBytes int64
	MemoryBytes int64 // for decoded bricks
	Fields      []CropsField
	// BricksWanted is how many stored bricks a crop touches, and WantedBytes their decoded size; both
	// are means.
	BricksWanted float64
	WantedBytes  float64
	Orders       []CropsOrder // the spec's first
}

// CropsField is an array of the first cube.
type CropsField struct {
	Name, Path, Descr string
	// ComputedOf says of what elements are computed that are not what is stored; "" where they are.
	ComputedOf        string
	Dims              []string // "" for one without a name
	Shape, Crop, Step []int64
	Brick, Object     []int64
	Codecs            []string
	BrickBytes        int64
	Objects, Stored   int64     // of all cubes, and how many of them there are
	DecodedAlong      []float64 // elements decoded along each dimension, for each that a crop has
	IgnoredFiles      int64
}

// CropsOrder is what is decoded in an order.
type CropsOrder struct {
	Shuffle spec.Shuffle
	InUse   bool
	// Bricks are those decoded for a crop, where those that were not used for longest are dropped
	// from memory, and Bytes their size.
	Bricks, Bytes float64
	// OnceBytes is the memory for decoded bricks from which on nearly all of them (19 in 20) are
	// decoded once.
	OnceBytes int64
}

// Bounds of what is looked at: a fraction of a second of work an order.
const (
	forecastRecords = 16384
	forecastWants   = 1 << 21
)

// ForecastCrops says what crops take; nil where records are not crops. It reads no data.
func (d *Dataset) ForecastCrops(ctx context.Context) (*CropsForecast, error) {
	g, release := d.hold()
	defer release()
	if g.cubes == nil {
		return nil, nil
	}
	return g.forecastCrops(ctx)
}

func (g *generation) forecastCrops(ctx context.Context) (*CropsForecast, error) {
	f := &CropsForecast{RecordBytes: g.cubes[0].Cut.Row().Bytes, MemoryBytes: g.mount.files.(*cubes.Storage).MostHeldBytes()}
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
		if i == 0 {
			f.Records, f.BricksWanted, f.WantedBytes = u.records, u.mean(u.wants), u.mean(uint64(u.wantedBytes))
			f.along(u)
		}
		bricks, bytes := u.decoded(f.MemoryBytes)
		f.Orders = append(f.Orders, CropsOrder{Shuffle: o.Shuffle, InUse: i == 0, Bricks: u.mean(bricks), Bytes: u.mean(uint64(bytes)), OnceBytes: u.once()})
	}
	return f, nil
}

// fields fills in what is known of the arrays.
func (f *CropsForecast) fields(cubes []*listing.Cube) error {
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
			Brick: a.Brick, Object: a.Object, Codecs: codecNames(a), BrickBytes: a.BrickBytes(),
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
func (f *CropsForecast) along(u *brickUses) {
	for k := range f.Fields {
		x := &f.Fields[k]
		for d, n := range u.along[k] {
			x.DecodedAlong = append(x.DecodedAlong, u.mean(n)*float64(x.Brick[d])/float64(max(x.Crop[d], 1)))
		}
	}
}

// usesOf goes through the first records of an order.
func (g *generation) usesOf(ctx context.Context, o spec.Order) (*brickUses, error) {
	e, err := order.NewEpoch(o, g.spec.Epoch, g.chunkStarts(o.ChunkBytes, o.ChunkRecords), g.part)
	if err != nil {
		return nil, err
	}
	v, err := order.NewView(e, nil, spec.Deal{Workers: 1, Batch: o.Batch, Dealing: spec.DealInterleaved, Tail: spec.TailKeep})
	if err != nil {
		return nil, err
	}
	w := newWanter(g)
	records, extents := make([]uint64, 256), make([]catalog.Extent, 256)
	for k := uint64(0); k < forecastRecords && w.uses.wants < forecastWants; {
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

// wanter finds out which bricks records want.
type wanter struct {
	g     *generation
	at    *locator
	crops map[int][]*zarr.Crop // of each cube
	uses  *brickUses
	seen  []map[int64]bool // places of a crop's bricks along each dimension
}

func newWanter(g *generation) *wanter {
	w := &wanter{g: g, at: &locator{cubes: g.cubes, seed: g.spec.Order.Seed, spots: map[int]*placed{}}, crops: map[int][]*zarr.Crop{}, uses: newBrickUses()}
	for _, f := range g.cubes[0].Fields {
		w.uses.along = append(w.uses.along, make([]uint64, len(f.Array.Shape)))
	}
	return w
}

// record notes the bricks of a record.
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
	bricks, objects := a.Bricks(), a.Objects()
	object := make([]int64, len(a.Shape))
	w.seen = w.seen[:0]
	for range a.Shape {
		w.seen = append(w.seen, map[int64]bool{})
	}
	_ = crop.Parts(a.Shape, a.Brick, func(p *zarr.Part) error {
		for d, n := range p.Brick {
			if !w.seen[d][n] {
				w.seen[d][n] = true
				w.uses.along[k][d]++
			}
		}
		a.ObjectOf(object, p.Brick)
		if f.Has(objects.Number(object)) {
			w.uses.add(brickUse{shard, k, bricks.Number(p.Brick)}, a.BrickBytes())
		}
		return nil
	})
}

// brickUse names a brick.
type brickUse struct {
	cube, field int
	brick       int64
}

// brickUses is how bricks are used, one after the other. Of each use that is not a brick's first it
// knows what was used in between: a brick is still in a memory, from which those go that were not
// used for longest, if that and the brick fit.
type brickUses struct {
	records     uint64
	wants       uint64
	wantedBytes int64
	along       [][]uint64 // bricks along each dimension, of each field, of all records

	last     map[brickUse]int
	sizes    []int64 // at the last use of each brick, else 0: sums of runs, as a Fenwick tree has them
	distinct uint64
	bytes    int64 // of distinct
	again    []use // that are not the first
}

// use is a brick that is wanted again: what memory it takes to have it still, and its size.
type use struct{ memoryBytes, bytes int64 }

func newBrickUses() *brickUses {
	return &brickUses{last: map[brickUse]int{}, sizes: []int64{0}}
}

func (u *brickUses) mean(n uint64) float64 { return float64(n) / float64(max(u.records, 1)) }

// add notes the next use.
func (u *brickUses) add(b brickUse, bytes int64) {
	u.wants++
	u.wantedBytes += bytes
	now := len(u.sizes)
	// The new place of the tree has the sum of the run that ends there.
	sum := int64(0)
	for i, end := now-1, now-now&-now; i > end; i -= i & -i {
		sum += u.sizes[i]
	}
	u.sizes = append(u.sizes, sum)
	before, used := u.last[b]
	if used {
		u.again = append(u.again, use{u.upTo(now) - u.upTo(before-1), bytes})
		u.change(before, -bytes)
	} else {
		u.distinct++
		u.bytes += bytes
	}
	u.change(now, bytes)
	u.last[b] = now
}

func (u *brickUses) upTo(i int) (sum int64) {
	for ; i > 0; i -= i & -i {
		sum += u.sizes[i]
	}
	return sum
}

func (u *brickUses) change(i int, bytes int64) {
	for ; i < len(u.sizes); i += i & -i {
		u.sizes[i] += bytes
	}
}

// decoded is how many bricks are decoded with so much memory.
func (u *brickUses) decoded(memoryBytes int64) (bricks uint64, bytes int64) {
	bricks, bytes = u.distinct, u.bytes
	for _, x := range u.again {
		if x.memoryBytes > memoryBytes {
			bricks++
			bytes += x.bytes
		}
	}
	return bricks, bytes
}

// once is the least memory with which nearly all bricks are decoded once.
func (u *brickUses) once() int64 {
	memory := make([]int64, len(u.again))
	for i, x := range u.again {
		memory[i] = x.memoryBytes
	}
	slices.Sort(memory)
	n := len(memory) - int(u.distinct/20)
	if n <= 0 {
		return 0
	}
	return memory[n-1]
}
