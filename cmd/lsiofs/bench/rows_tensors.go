package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

const (
	// tensorsExtension is the extension of streams of tensors.
	tensorsExtension = ".npy"
	// tensorsReaders is the number of concurrent readers of decoded games.
	tensorsReaders = 2
)

// addTensors adds the rows for games whose streams are tensors. What they read is counted in
// bytes of the original frames, so that records and ratios refer to frames.
func (s *session) addTensors(l *rowList) {
	if !s.scope.games {
		return
	}
	l.add(row{id: rowTensorsEpoch, name: "mount --as tensors, first epoch of a process", against: rowMountEpoch, measure: s.measureTensorsEpoch})
	l.add(row{id: rowTensorsHot, name: fmt.Sprintf("mount --as tensors, decoded games, %s", readersText(tensorsReaders)), measure: s.measureTensorsHot})
}

// asTensors returns the flags of such a mount, and the size of a row.
func asTensors() (flags []string, rowBytes int, err error) {
	t, err := lc0.NewTensors(lc0.Element(spec.AsTensorsU1.Element()))
	return []string{"--workers", "1", "--as", string(spec.AsTensorsU1)}, t.RowBytes(), err
}

// inFrames converts a reading in bytes of rows to bytes of frames.
func (s *session) inFrames(r reading, rowBytes int) reading {
	r.bytes = int64(float64(r.bytes) / float64(rowBytes) * s.scope.recordBytes)
	return r
}

// measureTensorsEpoch is measureFirst with tensors.
func (s *session) measureTensorsEpoch(ctx context.Context) (r reading, err error) {
	flags, rowBytes, err := asTensors()
	if err != nil {
		return reading{}, err
	}
	if err := touchMemory(ctx, s.newProcessBytes()); err != nil {
		return reading{}, err
	}
	v, err := s.startMount(ctx, flags...)
	if err != nil {
		return reading{}, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	r, err = s.readMount(ctx, v, []readJob{{Paths: []string{fmt.Sprintf("%s/epoch-0/worker-0-of-1%s", v.point, tensorsExtension)}, StopAfter: s.epochTime()}})
	return s.inFrames(r, rowBytes), err
}

// measureTensorsHot reads from a mount with as many games as its memory holds decoded.
func (s *session) measureTensorsHot(ctx context.Context) (reading, error) {
	flags, rowBytes, err := asTensors()
	if err != nil {
		return reading{}, err
	}
	if s.tensors == nil {
		part := min(float64(s.config.Spec.MemoryBytes)/2/float64(s.scope.allDecoded), 1)
		if s.config.Spec.Order.Split.Part.Whole() && part < 1 {
			flags = append(flags, "--split", fmt.Sprintf("0..%.4f", max(part, 0.0001)))
		}
		if s.tensors, err = s.startMount(ctx, flags...); err != nil {
			return reading{}, err
		}
		s.servers = append(s.servers, s.tensors)
	}
	if s.warming { // this decodes everything
		if _, err := s.readMount(ctx, s.tensors, s.jobsOf(s.tensors.point, tensorsExtension, 1, 0)); err != nil {
			return reading{}, err
		}
	}
	r, err := s.readMount(ctx, s.tensors, s.jobsOf(s.tensors.point, tensorsExtension, tensorsReaders, s.slot))
	return s.inFrames(r, rowBytes), err
}
