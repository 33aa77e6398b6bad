package units

import (
	"io"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/encode"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
)

// Writer assembles units into a shard. It must not be used concurrently.
type Writer struct {
	out   *encode.Writer
	games bool // it is a tar of games
	head  []byte
	tail  []byte // the end of a shard
}

// NewWriter returns a writer of a shard in the container that codec decodes.
func (c *Cutter) NewWriter(codec format.Codec, out io.Writer) (*Writer, error) {
	w := &Writer{}
	var err error
	switch {
	case c.Single(codec): // its member is the file
		w.out, err = encode.New(nil, out)
	case c.format.Name() == "lc0":
		w.games, w.tail = true, archiveEnd[:]
		w.out, err = encode.New(nil, out)
	default:
		w.out, err = encode.New(codec, out)
	}
	if c.format.Name() == "tar" {
		w.tail = archiveEnd[:]
	}
	return w, err
}

// Write writes the result of a unit.
func (w *Writer) Write(u Unit, member []byte) error {
	w.head = w.head[:0]
	if w.games {
		w.head = tar.FileFraming{}.AppendHeader(w.head, []byte(u.path), int64(len(member)))
	}
	parts := [][]byte{w.head, member, nil}
	if w.games {
		parts[2] = archiveEnd[:(512-len(member)%512)%512]
	}
	for _, p := range parts {
		if _, err := w.out.Write(p); err != nil {
			return err
		}
	}
	return w.out.EndUnit()
}

// Close ends the shard.
func (w *Writer) Close() error {
	if _, err := w.out.Write(w.tail); err != nil {
		return err
	}
	return w.out.Close()
}
