package fs

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline"
)

// cropped is what a dataset of crops implements in addition to Dataset. A *pipeline.Dataset is one
// if Crops returns true.
type cropped interface {
	// Crops reports whether records are crops of arrays, so that workers have files of
	// stream.Crops.
	Crops() bool
	// Cubes returns the paths of the cubes that crops are cut from.
	Cubes() []string
	// Coordinates returns the coordinates of a cube, by its index in Cubes, and Coordinate reads
	// the file of one.
	Coordinates(ctx context.Context, cube int) ([]pipeline.Coordinate, error)
	Coordinate(ctx context.Context, cube int, dim string) ([]byte, error)
}

// croppedOf returns d as a dataset of crops, nil for others.
func croppedOf(d Dataset) cropped {
	if c, can := d.(cropped); can && c.Crops() {
		return c
	}
	return nil
}
