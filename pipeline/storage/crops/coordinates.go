package crops

import (
	"context"
	"errors"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/format/npy"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/listing"
)

// Coordinates returns the coordinate arrays of a listed cube.
func (s *Storage) Coordinates(ctx context.Context, c *listing.Grid) (list []listing.Coordinate, err error) {
	if !c.Alone() || s.config.Group == nil {
		return listing.Coordinates(ctx, s.under, c, s.room.totalBytes)
	}
	group, err := s.config.Group()
	if err != nil {
		for _, dim := range c.Fields[0].Array.Dims {
			if dim != "" {
				list = append(list, listing.Coordinate{Dim: dim, Path: dim, LeftOut: err})
			}
		}
		return list, nil
	}
	defer func() { err = errors.Join(err, group.Close()) }()
	return listing.CoordinatesBeside(ctx, group, c, s.room.totalBytes)
}

// CoordinateBytes returns the size of the file that ReadCoordinate returns. It fails if x was left
// out, or if its type does not exist in npy.
func CoordinateBytes(x listing.Coordinate) (int64, error) {
	head, err := coordinateHead(x)
	if err != nil {
		return 0, err
	}
	return int64(len(head)) + x.Array.Shape[0]*int64(x.Array.Type.ItemBytes), nil
}

func coordinateHead(x listing.Coordinate) ([]byte, error) {
	if x.LeftOut != nil {
		return nil, x.LeftOut
	}
	rows, err := npy.NewRows(x.Array.Type.Descr, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", x.Path, err)
	}
	return rows.Prologue(uint64(x.Array.Shape[0])), nil
}

// ReadCoordinate reads a coordinate of a listed cube as an npy file. It fails if the array has
// changed since.
func (s *Storage) ReadCoordinate(ctx context.Context, c *listing.Grid, x listing.Coordinate) (file []byte, err error) {
	head, err := coordinateHead(x)
	if err != nil {
		return nil, err
	}
	// The whole array is read as the only crop of a cube of its own.
	var under storage.Storage = borrowed{s.under}
	if c.Alone() && s.config.Group != nil {
		if under, err = s.config.Group(); err != nil {
			return nil, fmt.Errorf("%s: %w", x.Path, err)
		}
	}
	path, match := c.Group(x)
	whole := Wrap(under, Config{
		Spec: spec.Zarr{
			Fields: []spec.Array{{Pattern: path}},
			Crop:   []spec.DimValue{{Value: x.Array.Shape[0]}},
		},
		Base: c.Object.Path, TrustAbsence: s.config.TrustAbsence, MaxChunkBytes: s.config.MaxChunkBytes, room: s.room,
	})
	defer func() { err = errors.Join(err, whole.Close()) }()
	var found storage.Object
	err = whole.List(ctx, match, func(o storage.Object) error { found = o; return nil })
	if err != nil {
		return nil, err
	}
	size := x.Array.Shape[0] * int64(x.Array.Type.ItemBytes)
	one := whole.Cube(found.Path)
	if one == nil || one.Fields[0].Array.Shape[0] != x.Array.Shape[0] || one.Fields[0].Array.Type.Descr != x.Array.Type.Descr {
		return nil, fmt.Errorf("%s: %w", x.Path, storage.ErrChanged)
	}
	file = make([]byte, len(head)+int(size))
	if err = storage.ReadAt(ctx, whole, found, file[copy(file, head):], found.SizeBytes-size); err != nil {
		return nil, err
	}
	return file, nil
}

// borrowed is a storage that its owner closes.
type borrowed struct{ storage.Storage }

func (borrowed) Close() error { return nil }
