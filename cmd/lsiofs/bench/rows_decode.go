package bench

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/uring"
)

// decodePartBytes is how much measureDecodeOwn decodes at a time: a chunk.
const decodePartBytes = 256 << 10

// measureDecodeOwn decodes all shards with a mount's decoders, as many at a time as there are
// cores, to memory that is new to this process. A first epoch can't do with less.
func (s *session) measureDecodeOwn(ctx context.Context) (reading, error) {
	if err := touchMemory(ctx, s.newProcessBytes()); err != nil {
		return reading{}, err
	}
	memory, err := uring.Map(int(s.scope.allDecoded))
	if err != nil {
		return reading{}, notMeasured("%w", err)
	}
	type work struct {
		shard string
		to    []byte
	}
	works := make(chan work)
	var mu sync.Mutex
	var errs []error
	cpu, began := ownCPU(), monotonic()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for w := range works {
				err := decodeInto(ctx, w.shard, w.to)
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	rest := memory
	for i, shard := range s.scope.shards {
		n := s.scope.decodedBytes[i]
		works <- work{shard, rest[:n]}
		rest = rest[n:]
	}
	close(works)
	workers.Wait()
	r := reading{bytes: s.scope.streamBytes, elapsed: monotonic() - began, cpu: ownCPU() - cpu, mallocs: -1}
	errs = append(errs, uring.Unmap(memory))
	return r, errors.Join(errs...)
}

// decodeInto decodes a shard to memory of its decoded size.
func decodeInto(ctx context.Context, shard string, to []byte) error {
	file, err := os.Open(shard)
	if err != nil {
		return err
	}
	defer file.Close()
	_, codec := formats.Split(shard)
	if codec == nil {
		_, err := io.ReadFull(file, to)
		return err
	}
	st, err := file.Stat()
	if err != nil {
		return err
	}
	d, err := format.NewDecoded(codec, file, st.Size(), format.Entry{})
	if err != nil {
		return err
	}
	defer d.Close()
	for len(to) > 0 && ctx.Err() == nil {
		n, err := io.ReadFull(d, to[:min(len(to), decodePartBytes)])
		if err != nil {
			return err
		}
		to = to[n:]
	}
	return ctx.Err()
}
