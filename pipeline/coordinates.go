package pipeline

import (
	"context"
	"fmt"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage/crops"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/listing"
)

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
