package union

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// planner is a Storage with at least one source that is a Planner. Plans for other sources are
// dropped.
type planner struct{ *Storage }

// Plan implements storage.Planner. Every source gets a plan, even if it is empty: a plan replaces
// the reader's previous one.
func (p planner) Plan(reader uint64, wants []storage.Want) {
	of := make([][]storage.Want, len(p.sources))
	for _, w := range wants {
		var i int
		if i, w.Object = p.below(w.Object); i >= 0 {
			of[i] = append(of[i], w)
		}
	}
	for i, x := range p.sources {
		if to, is := x.Storage.(storage.Planner); is {
			to.Plan(reader, of[i])
		}
	}
}

// Done implements storage.Planner.
func (p planner) Done(reader uint64, o storage.Object, offsetBytes, sizeBytes int64) {
	i, below := p.below(o)
	if i < 0 {
		return
	}
	if to, is := p.sources[i].Storage.(storage.Planner); is {
		to.Done(reader, below, offsetBytes, sizeBytes)
	}
}

// Forget implements storage.Planner.
func (p planner) Forget(reader uint64) {
	for _, x := range p.sources {
		if to, is := x.Storage.(storage.Planner); is {
			to.Forget(reader)
		}
	}
}

// keeper is a planner whose Planners are all Keepers.
type keeper struct{ planner }

// RoomBytes returns the least room of any source: caches on one disk share it.
func (k keeper) RoomBytes() int64 {
	least, any := int64(0), false
	for _, x := range k.sources {
		if to, is := x.Storage.(storage.Keeper); is {
			if room := to.RoomBytes(); !any || room < least {
				least, any = room, true
			}
		}
	}
	return least
}

// SetShare implements storage.Keeper: all open data may be of one source.
func (k keeper) SetShare(bytes int64) {
	for _, x := range k.sources {
		if to, is := x.Storage.(storage.Keeper); is {
			to.SetShare(bytes)
		}
	}
}

// streamReadBytes is how much is read at a time from sources that have no streams.
const streamReadBytes = 1 << 20

// OpenSequential implements storage.Sequential, with reads if a source has no streams.
func (s *Storage) OpenSequential(ctx context.Context, o storage.Object, off int64) (io.ReadCloser, error) {
	i, below := s.below(o)
	if i < 0 {
		return nil, &storage.Error{Object: o.Path, OffsetBytes: off, SizeBytes: o.SizeBytes - off, Err: fmt.Errorf("it does not belong to a source: %w", storage.ErrChanged)}
	}
	if streams, is := s.sources[i].Storage.(storage.Sequential); is {
		r, err := streams.OpenSequential(ctx, below, off)
		if err != nil {
			return nil, s.named(i, err)
		}
		return namedStream{r, s, i}, nil
	}
	ctx, end := context.WithCancel(ctx)
	r := storage.NewReader(ctx, s.sources[i].Storage, below, streamReadBytes)
	section := io.NewSectionReader(r, off, max(below.SizeBytes-off, 0))
	return namedStream{reads{bufio.NewReaderSize(section, streamReadBytes), end}, s, i}, nil
}

// reads is a stream that consists of reads.
type reads struct {
	io.Reader
	end context.CancelFunc
}

// Close ends a pending Read.
func (r reads) Close() error {
	r.end()
	return nil
}

// namedStream is a stream whose errors include the source in the object's name.
type namedStream struct {
	io.ReadCloser
	of     *Storage
	source int
}

func (n namedStream) Read(p []byte) (int, error) {
	m, err := n.ReadCloser.Read(p)
	if err == nil || err == io.EOF { //nolint:errorlint // Read's is not wrapped
		return m, err
	}
	return m, n.of.named(n.source, err)
}
