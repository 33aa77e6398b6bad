package pipeline

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/listing"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/stream"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// cubesOver presents the Zarr arrays of a storage as shards of crops.
func (m *mount) cubesOver(under storage.Storage, atService bool) *crops.Storage {
	base := path.Base(m.root)
	if abs, err := filepath.Abs(m.spec.Dataset); err == nil && !atService {
		base = filepath.Base(abs) // as typed: a link may have another name than its target
	}
	config := crops.Config{
		Spec: m.spec.Format.Zarr, Base: base, Seed: m.spec.Order.Seed, IDPrefix: m.prefix(),
		MemoryBytes:   m.spec.MemoryBytes - m.recordMemory(),
		MaxChunkBytes: m.spec.MaxRecordBytes, TrustAbsence: atService,
		SkipDamaged: m.spec.OnCorrupt == spec.CorruptSkip, Named: m.named(),
	}
	if !atService && m.target.Whole() {
		config.Group = func() (storage.Storage, error) {
			return local.OpenAmong(filepath.Dir(m.root), m.engine, local.DirectOff, groupStorages)
		}
	}
	m.crops = crops.Wrap(under, config)
	return m.crops
}

// named returns the paths that must each have a cube. Excluded paths need not exist.
func (m *mount) named() []string {
	t := m.target
	if t.Exclude(m.spec.Exclude) != nil {
		return nil // the catalog reports the error
	}
	return slices.DeleteFunc(t.Named(), func(path string) bool { return t.LeavesOutWithin(path, "zarr") })
}

// groupStorages keeps the number of open files low in a storage that is only read for coordinates.
const groupStorages = 1 << 10

// referencesOver presents the hierarchies described by reference files, if the dataset is such a
// file.
func (m *mount) referencesOver(under storage.Storage) storage.Storage {
	c, ok := m.target.References()
	if !ok {
		return under
	}
	c.Roots, c.Foreign = []string{m.root}, foreign
	c.MemoryBytes = m.spec.MemoryBytes - m.recordMemory()
	if abs, err := filepath.Abs(m.spec.Dataset); err == nil && m.service == nil && c.One != "" {
		c.Roots = append(c.Roots, filepath.Dir(abs)) // as typed
	}
	return refs.Wrap(under, c)
}

// foreign returns an error if the first bytes of a file in a store's place show that it is another
// kind of file; nil otherwise.
func foreign(head []byte) error {
	if is, other := format.IsForeign(head); other {
		return fmt.Errorf("it is %s: %s", is.What, is.Next)
	}
	return nil
}

// cropMounts returns the mounts whose records are crops: this one, or the sources of a mixture.
func (m *mount) cropMounts() (list []*mount) {
	for _, s := range m.leaves() {
		if s.crops != nil {
			list = append(list, s)
		}
	}
	return list
}

// listedCube is a cube as the storage that cuts its crops has listed it.
type listedCube struct {
	mount *mount
	*listing.Grid
}

// listedCube returns the cube of a shard, by its path in the dataset; its Grid is nil if there is
// none.
func (m *mount) listedCube(path string) listedCube {
	for _, s := range m.cropMounts() {
		if below, within := strings.CutPrefix(path, s.prefix()); within {
			return listedCube{s, s.crops.Cube(below)}
		}
	}
	return listedCube{}
}

// findCubes finds the cube of each shard, and lets streams report where their records are cut from.
// It does nothing if records are not crops.
func (g *generation) findCubes() error {
	if g.mount.cropMounts() == nil {
		return nil
	}
	for i := range g.catalog.Shards() {
		path := g.catalog.Shard(i).Object.Path
		listed := g.mount.listedCube(path)
		if listed.Grid == nil {
			return fmt.Errorf("%s is in the index but was not listed: run again", path)
		}
		c := *listed.Grid
		c.Object.Path = path
		g.cubes, g.listed = append(g.cubes, &c), append(g.listed, listed)
	}
	g.coordinates = make([]coordinates, len(g.cubes))
	dims := len(g.cubes[0].Cut.Axes())
	return g.source.SetCrops(placeNumbers+dims, func() stream.Locate {
		l := &locator{cubes: g.cubes, seed: g.spec.Order.Seed, spots: map[int]*placed{}}
		return l.Locate
	})
}

// cubeStats returns counters of array decoding; nil if records are not crops.
func (m *mount) cubeStats() *crops.Stats {
	mounts := m.cropMounts()
	if mounts == nil {
		return nil
	}
	sum := new(crops.Stats)
	for _, s := range mounts {
		sum.Add(s.crops.Stats())
	}
	return sum
}

// kept returns the function that lists which records of a shard are in orders; nil if the storage
// leaves none out.
func (m *mount) kept() func(path string) []uint64 {
	if m.cropMounts() == nil {
		return nil
	}
	return func(path string) []uint64 {
		if c := m.listedCube(path); c.Grid != nil {
			return c.Cut.Kept()
		}
		return nil
	}
}

// placeNumbers is how many numbers precede the origin of a crop: its cube and its row.
const placeNumbers = 2

// locator finds where crops were cut from. The numbers of a crop are the index of its cube among the
// shards, its row (zarr.Spot) and its origin in the first array.
type locator struct {
	cubes []*listing.Grid
	seed  uint64
	spots map[int]*placed // by cube
}

// placed is the state for locating crops of a cube in one epoch.
type placed struct {
	spot   *zarr.Spot
	epoch  uint64
	jitter *zarr.Jitter // nil if origins do not move
}

// Locate is a stream.Locate.
func (l *locator) Locate(dst []int64, shard int, ordinal, epoch uint64) {
	spot := l.locate(shard, ordinal, epoch)
	dst[0], dst[1] = int64(shard), spot.Row
	copy(dst[placeNumbers:], spot.Origin)
}

// locate returns the place of a record, valid until the next call.
func (l *locator) locate(shard int, ordinal, epoch uint64) *zarr.Spot {
	c, p := l.cubes[shard], l.spots[shard]
	if p == nil || p.epoch != epoch {
		p = &placed{spot: c.Cut.NewSpot(), epoch: epoch}
		if c.Cut.Jitters() {
			j := zarr.NewJitter(l.seed, epoch, c.Object.Path)
			p.jitter = &j
		}
		l.spots[shard] = p
	}
	c.Cut.Locate(p.spot, ordinal, p.jitter)
	return p.spot
}

// mostLeftOut bounds the warnings that name what is left out, for each kind.
const mostLeftOut = 5

// cropWarnings lists what may surprise users who mount crops.
func (g *generation) cropWarnings() (list []string) {
	if g.cubes == nil {
		return nil
	}
	var unused []crops.Unused
	oneAtATime := int64(0)
	for _, m := range g.mount.cropMounts() {
		for _, u := range m.crops.Unused() {
			if !u.Plain {
				u.Path = m.prefix() + u.Path
				unused = append(unused, u)
			}
		}
		oneAtATime = max(oneAtATime, m.crops.OneAtATime())
	}
	for _, u := range unused[:min(len(unused), mostLeftOut)] {
		list = append(list, fmt.Sprintf("%s is left out: %s", u.Path, u.Why))
	}
	if more := len(unused) - mostLeftOut; more > 0 {
		list = append(list, fmt.Sprintf("%d more are left out, besides the stores that are read: name the stores with a pattern", more))
	}
	named, more := 0, 0
	for i, c := range g.cubes {
		out := g.listed[i].mount.crops.LeftOut(g.listed[i].Object.Path)
		switch {
		case out.Crops == 0:
		case named == mostLeftOut:
			more++
		default:
			named++
			list = append(list, fmt.Sprintf("%s: %d of %d crops are left out: %s", c.Object.Path, out.Crops, c.Cut.Total(), out.Reason()))
		}
	}
	if more > 0 {
		list = append(list, fmt.Sprintf("crops are left out of %d further stores: dataset.json has all figures", more))
	}
	if oneAtATime > 0 {
		list = append(list, fmt.Sprintf("decoding a chunk takes %s: within half of --memory one core decodes at a time", humanize.IBytes(uint64(oneAtATime))))
	}
	if g.spec.Order.Split.Or() == (spec.Split{}) {
		return list
	}
	asked := g.spec.Format.Zarr
	overlap := asked.Jitter || asked.List != ""
	for _, a := range g.cubes[0].Cut.Axes() {
		overlap = overlap || a.Stride < a.Extent()
	}
	if overlap {
		list = append(list, "crops overlap, so that the parts of a --split have elements in common: better select a region for each part, as --select time=0:70000")
	}
	return list
}

// Coordinate is a file of coordinates: a one-dimensional npy array with the coordinates of the
// elements along a dimension of a cube.
type Coordinate struct {
	Dim       string
	SizeBytes int64
}

// coordinates are the coordinates of a cube. They are looked up once.
type coordinates struct {
	mu    sync.Mutex
	known bool
	found []listing.Coordinate
	sizes []int64
}

// Cubes returns the paths of the cubes that crops are cut from, in order; nil if records are not
// crops.
func (d *Dataset) Cubes() []string {
	g, release := d.acquire()
	defer release()
	var paths []string
	for _, c := range g.cubes {
		paths = append(paths, c.Object.Path)
	}
	return paths
}

// Coordinates returns the coordinates of a cube, by its index in Cubes. The first call reads the
// metadata of the arrays, and logs each array that cannot be read, with the reason.
func (d *Dataset) Coordinates(ctx context.Context, cube int) ([]Coordinate, error) {
	g, release := d.acquire()
	defer release()
	x, err := g.coordinatesOf(ctx, cube)
	if err != nil {
		return nil, err
	}
	var list []Coordinate
	for i, c := range x.found {
		list = append(list, Coordinate{c.Dim, x.sizes[i]})
	}
	return list, nil
}

// Coordinate reads the file of one of the Coordinates of a cube.
func (d *Dataset) Coordinate(ctx context.Context, cube int, dim string) ([]byte, error) {
	g, release := d.acquire()
	defer release()
	x, err := g.coordinatesOf(ctx, cube)
	if err != nil {
		return nil, err
	}
	for _, c := range x.found {
		if c.Dim == dim {
			return g.listed[cube].mount.crops.ReadCoordinate(ctx, g.listed[cube].Grid, c)
		}
	}
	return nil, fmt.Errorf("%s has no coordinates of %s", g.cubes[cube].Object.Path, dim)
}

// coordinatesOf finds the coordinates of a cube.
func (g *generation) coordinatesOf(ctx context.Context, cube int) (*coordinates, error) {
	x := &g.coordinates[cube]
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.known {
		return x, nil
	}
	list, err := g.listed[cube].mount.crops.Coordinates(ctx, g.listed[cube].Grid)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		size, err := crops.CoordinateBytes(c)
		if err != nil {
			g.mount.log.Warn("a file of coordinates is left out", "cube", g.cubes[cube].Object.Path, "dimension", c.Dim, "reason", err)
			continue
		}
		x.found, x.sizes = append(x.found, c), append(x.sizes, size)
	}
	x.known = true
	return x, nil
}
