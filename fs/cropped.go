package fs

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline"
)

// cropped is what a dataset of crops has beside Dataset; a *pipeline.Dataset is one where Crops
// says so.
type cropped interface {
	// Crops says that records are crops of arrays, so that workers have files of
	// stream.Crops.
	Crops() bool
	// Cubes are the paths of what crops are cut from.
	Cubes() []string
	// Coordinates are those of a cube, by its place among Cubes, and Coordinate is the file of
	// one.
	Coordinates(ctx context.Context, cube int) ([]pipeline.Coordinate, error)
	Coordinate(ctx context.Context, cube int, dim string) ([]byte, error)
}

// croppedOf is a dataset of crops, nil for others.
func croppedOf(d Dataset) cropped {
	if c, can := d.(cropped); can && c.Crops() {
		return c
	}
	return nil
}
