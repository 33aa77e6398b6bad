package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// TestReadersDuringRestoresSeeOneStreamOrESTALE restores repeatedly while others read: what a
// handle delivers before it fails is a prefix of one of the streams, and never a mixture.
func TestReadersDuringRestoresSeeOneStreamOrESTALE(t *testing.T) {
	d := plain(t, "jsonl", 12)
	s := usual()
	ref := newReference(t, d)
	m := mountDataset(t, d, s)
	var streams [][]byte
	var documents [][]byte
	for from := range 5 {
		s.Epoch = uint64(from % 2)
		streams = append(streams, ref.ask(question{settings: s, Worker: 1, From: from * 20, Kind: "data"}))
		documents = append(documents, fmt.Appendf(nil, `{"epoch": %d, "samples": %d}`, s.Epoch, from*20))
	}
	m.restore(documents[0])

	var whole, stale atomic.Int64
	var done atomic.Bool
	var group errgroup.Group
	for range 3 {
		group.Go(func() error {
			for last := false; !last; {
				last = done.Load()
				got, err := readSlowly(m.path("worker-1.jsonl"))
				switch {
				case errors.Is(err, syscall.ESTALE):
					stale.Add(1)
				case err != nil:
					return err
				default:
					whole.Add(1)
				}
				if !beginsOneOf(streams, got, err == nil) {
					return fmt.Errorf("%d bytes that no stream begins with (%v)", len(got), err)
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		defer done.Store(true)
		for i := range 200 {
			if err := m.write(documents[i%len(documents)]); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, group.Wait())
	require.Positive(t, whole.Load()+stale.Load())
	requireFile(t, streams[199%len(streams)], m.path("worker-1.jsonl"))
}

// readSlowly reads a file in small pieces, and returns what came before an error.
func readSlowly(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var got bytes.Buffer
	_, err = io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{f}, make([]byte, 700))
	return got.Bytes(), err
}

func beginsOneOf(streams [][]byte, got []byte, all bool) bool {
	for _, s := range streams {
		if bytes.HasPrefix(s, got) && (!all || len(s) == len(got)) {
			return true
		}
	}
	return false
}
