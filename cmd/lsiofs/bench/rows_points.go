package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// addPoints adds rows for what is slow with shards that are compressed as a whole: the first
// byte, a jump, and little memory.
func (s *session) addPoints(l *rowList) {
	l.add(row{id: rowMountHalf, name: "mount, --memory half the decoded size, from start to end", against: rowDecode, measure: s.measureHalf})
	if s.scope.codec != "gzip" {
		return
	}
	l.add(row{id: rowFirstByte, name: "mount to the first byte, as if all had come", against: rowDecode, measure: s.measureFirstByte})
	l.add(row{id: rowJump, name: "jump into the middle of a stream, beyond reading it again", unit: "ms", measure: s.measureJump})
	l.add(row{id: rowPoints, name: "places inside of members in the index, of the decoded size", unit: "%", measure: func(context.Context) (reading, error) {
		return reading{value: 100 * float64(s.scope.pointBytes) / float64(s.scope.allDecoded)}, nil
	}})
}

// measureHalf reads the first epoch of a new process that can't hold the dataset.
func (s *session) measureHalf(ctx context.Context) (reading, error) {
	return s.measureFromStart(ctx, fmt.Sprintf("--memory=%d", max(s.scope.allDecoded/2, leastMemory)))
}

// measureFirstByte measures from the start of a mount to the first bytes of a shuffled epoch.
func (s *session) measureFirstByte(ctx context.Context) (r reading, err error) {
	began := monotonic()
	v, err := s.startMount(ctx, "--workers", "1")
	if err != nil {
		return reading{}, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	j := s.firstEpoch(v.point)
	j.PathBytes = 4096
	done, err := s.together(ctx, []readJob{j})
	if err != nil {
		return reading{}, err
	}
	return reading{bytes: s.scope.streamBytes, elapsed: done[0].First - began, mallocs: -1}, nil
}

// jumpBytes is the size of the single request after a jump.
const jumpBytes = 4096

// measureJump reads in the middle of an epoch of which only the first bytes have been read, and
// then the same bytes again.
func (s *session) measureJump(ctx context.Context) (r reading, err error) {
	v, err := s.startMount(ctx, "--workers", "1")
	if err != nil {
		return reading{}, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	file, err := os.Open(filepath.Join(v.point, "epoch-0", "worker-0-of-1"+s.scope.extension))
	if err != nil {
		return reading{}, err
	}
	defer file.Close()
	p := make([]byte, jumpBytes)
	if _, err := file.ReadAt(p, 0); err != nil {
		return reading{}, err
	}
	var took [2]float64
	for i := range took {
		began := monotonic()
		if _, err := file.ReadAt(p, s.scope.streamBytes/2); err != nil {
			return reading{}, err
		}
		took[i] = float64(monotonic()-began) / 1e6
	}
	return reading{value: max(took[0]-took[1], 0)}, nil
}
