package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/order"
)

// halvesDir contains the sources of the mixture: two directories of links to the shards, with their
// indexes next to them.
const halvesDir = "halves"

// addMixture adds the row for a mixture of two sources, which together have all records of the
// dataset, in their shares. The difference in speed is the cost of mixing.
func (s *session) addMixture(l *rowList) {
	if s.scope.compressed || s.scope.files {
		return
	}
	l.add(row{id: rowMixture, name: "mount of both halves mixed, 1 reader", against: rowMount + "1", measure: s.measureMixture})
}

// measureMixture is measureMount of the mixture.
func (s *session) measureMixture(ctx context.Context) (reading, error) {
	if s.mixture == nil {
		if len(s.scope.shards) < 2 || !s.scope.whole {
			return reading{}, notMeasured("a mixture needs two shards, and all of them in the page cache")
		}
		if sp := s.config.Spec; !sp.Order.Split.Part.Whole() || sp.Order.Sample.Of > 1 {
			return reading{}, notMeasured("a mixture is of whole datasets")
		}
		records := s.halves()
		length := uint64(0)
		if shares, err := order.NewShares(s.config.Spec.Order.Seed, records); err == nil { // fails if a half has no records
			length, _ = shares.First(records)
		}
		if length == 0 {
			return reading{}, notMeasured("a mixture needs more than %d records", s.dataset.Records())
		}
		if err := s.mountMixture(ctx, records); err != nil {
			return reading{}, err
		}
	}
	slot := s.slot
	if s.warming {
		slot = 0 // a whole epoch, as in measureMount
	}
	return s.readMount(ctx, s.mixture, s.jobsOf(s.mixture.point, s.scope.extension, 1, slot))
}

// halves returns the numbers of records in the first and second half of the shards.
func (s *session) halves() []uint64 {
	records := make([]uint64, 2)
	for n := range s.scope.shards {
		i := 0
		if n >= len(s.scope.shards)/2 {
			i = 1
		}
		records[i] += s.dataset.Catalog().Shard(n).Records
	}
	return records
}

func (s *session) mountMixture(ctx context.Context, records []uint64) error {
	point, err := s.newPoint()
	if err != nil {
		return err
	}
	args := []string{point, "--workers", "1"}
	middle := len(s.scope.shards) / 2
	for i, half := range [][2]int{{0, middle}, {middle, len(s.scope.shards)}} {
		dir := filepath.Join(s.dir, halvesDir, fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Join(dir, ".lsiofs"), 0o700); err != nil {
			return err
		}
		for n := half[0]; n < half[1]; n++ {
			path := s.scope.shards[n]
			if err := os.Symlink(path, filepath.Join(dir, fmt.Sprintf("%06d-%s", n, filepath.Base(path)))); err != nil {
				return err
			}
		}
		args = append(args, "--mix", fmt.Sprintf("half%d=%d:%s", i, records[i], dir))
	}
	s.mixture, err = s.program.mountOn(ctx, point, s.log, append(args, slices.Clone(s.config.Flags)...))
	if err != nil {
		return err
	}
	s.servers = append(s.servers, s.mixture)
	return nil
}
