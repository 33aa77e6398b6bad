package pipeline

import (
	"context"
	"errors"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/arrays"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops"
)

// dryOver returns a function that returns a dry run's storage of what is made of files: crops, or
// arrays that are read together; nil if records are parts of files.
func (m *mount) dryOver() func(context.Context, storage.Storage) (read.DryStorage, error) {
	if !slices.ContainsFunc(m.leaves(), (*mount).makesRecords) {
		return nil
	}
	return func(ctx context.Context, below storage.Storage) (_ read.DryStorage, err error) {
		x := &dryStorages{}
		of := map[*mount]storage.Storage{}
		for _, s := range m.leaves() {
			if of[s], err = x.add(ctx, s, below); err != nil {
				return nil, errors.Join(err, x.Close())
			}
		}
		if x.Storage = of[m]; m.sources != nil {
			x.Storage = m.mixOf(func(s *mount) storage.Storage { return of[s] })
		}
		return x, nil
	}
}

// makesRecords reports whether records are made of files.
func (m *mount) makesRecords() bool {
	_, joined := m.files.(*arrays.Storage)
	return joined || m.crops != nil
}

// dryStorages is the storage in a dry run of records that are made of files.
type dryStorages struct {
	storage.Storage // one of the following, or the union of them
	crops           []*crops.Dry
	arrays          []*arrays.Dry
}

// add returns the storage in a dry run of a mount.
func (x *dryStorages) add(ctx context.Context, m *mount, below storage.Storage) (storage.Storage, error) {
	if m.crops != nil {
		d, err := m.crops.Dry(ctx, below)
		if err == nil {
			x.crops = append(x.crops, d)
		}
		return d, err
	}
	if s, joined := m.files.(*arrays.Storage); joined {
		d := s.Dry(below)
		x.arrays = append(x.arrays, d)
		return d, nil
	}
	return below, nil
}

// Step implements read.DryStorage.
func (x *dryStorages) Step() bool {
	return slices.ContainsFunc(x.crops, (*crops.Dry).Step) || slices.ContainsFunc(x.arrays, (*arrays.Dry).Step)
}

// Counts implements read.DryStorage.
func (x *dryStorages) Counts() (n read.DryCounts) {
	for _, d := range x.crops {
		s := d.Stats()
		n.Decoded += s.Decoded
		n.DecodedBytes += s.DecodedBytes
		n.Wants += d.Wants()
	}
	return n
}

// Close implements storage.Storage.
func (x *dryStorages) Close() (err error) {
	for _, d := range x.crops {
		err = errors.Join(err, d.Close())
	}
	return err
}
