// Package units cuts the shards of a dataset into the units that a filter processes, and assembles
// shards from the filter's results.
//
//	shard ──Each──► Unit{Name, Member} ──Data──► what a filter gets ──► a reply
//	                                                                     │ Check
//	shard of the same format and container ◄──Writer── member ◄──Member──┘
//
//	format    a unit                     its data                      its file
//	lc0       a game                     its frames, decoded           the .gz, named as in the shard
//	tar       a sample                   its members, as a tar         a .tar of them
//	jsonl     a line                     the line, with its newline    the same
//	lines     a line                     the same                      the same
//	tfrecord  a record                   its data, without checksums   the same
//
// A shard of npy, of fixed-size records, or of any other format that an own program reads can be
// filtered as a whole.
package units

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/encode"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
)

// Unit is one unit of a shard.
type Unit struct {
	// Number is the unit's index in the shard, from 0.
	Number int
	// Name is the unit's name in the dataset: the shard's path, and the name or number in the
	// shard.
	Name string
	// File is the unit's file name, for filters that get files. It has no slash. Games have their
	// own names, which may not be unique.
	File string
	// Member is the unit in the form of the shard's container: the game's .gz, the record.
	Member []byte
	// Err is why the unit could not be read: it is damaged or too large. Then there is no Member.
	Err error

	path string // of a game in its tar
}

// Cutter cuts shards of one format into units. It is immutable, and safe for concurrent use.
type Cutter struct {
	format format.Format
	kind   kind
	most   int64
}

// kind has the functions for a format's units.
type kind struct {
	extension string // of a unit's file; games have their own
	decode    func(member []byte, most int64) ([]byte, error)
	file      func(member []byte) []byte
	check     func(f format.Format, data []byte) ([]byte, uint64, error)
	member    func(data []byte) ([]byte, error)
}

// ErrWhole is wrapped by New's error for formats without units.
var ErrWhole = errors.New("its shards are filtered whole: use --each shard")

// New returns a Cutter for a format's shards. mostBytes bounds the decoded size of a unit.
func New(format format.Format, mostBytes int64) (*Cutter, error) {
	k, ok := kinds[format.Name()]
	if !ok {
		return nil, fmt.Errorf("format %s: %w", format.Name(), ErrWhole)
	}
	return &Cutter{format: format, kind: k, most: mostBytes}, nil
}

var kinds = map[string]kind{
	"lc0":      {decode: gunzip, file: same, check: checkGame, member: gzipGame},
	"tar":      {extension: ".tar", decode: plain, file: archive, check: checkSample, member: keep},
	"jsonl":    {extension: ".json", decode: plain, file: same, check: checkJSON, member: keep},
	"lines":    {extension: ".txt", decode: plain, file: same, check: checkLines, member: keep},
	"tfrecord": {extension: ".bin", decode: payload, file: payloadOf, check: checkAny, member: frame},
}

// Single reports whether a shard with that codec is one unit: a game in a separate file.
func (c *Cutter) Single(codec format.Codec) bool { return codec == lc0.Game{} }

// Data returns a unit's data for a filter. Errors mean that the unit is damaged.
func (c *Cutter) Data(u Unit) ([]byte, error) { return c.kind.decode(u.Member, c.most) }

// FileOf returns the contents of a unit's file.
func (c *Cutter) FileOf(u Unit) []byte { return c.kind.file(u.Member) }

// FromData returns the member for the data that a filter has made from a unit, and its number of
// records. It returns an error if the format rejects the data.
func (c *Cutter) FromData(data []byte) (member []byte, records uint64, err error) {
	data, records, err = c.kind.check(c.format, data)
	if err != nil {
		return nil, 0, err
	}
	member, err = c.kind.member(data)
	return member, records, err
}

// FromFile is FromData for a file. A game's file is kept unchanged.
func (c *Cutter) FromFile(file []byte) (member []byte, records uint64, err error) {
	if c.format.Name() != "lc0" {
		return c.FromData(file)
	}
	data, err := c.kind.decode(file, c.most)
	if err == nil {
		_, records, err = c.kind.check(c.format, data)
	}
	return file, records, err
}

// Each calls emit for each unit of a shard of sizeBytes, in order. emit owns its unit. Each returns
// errors of emit and of reading, and damage of the shard, after which it ends.
func (c *Cutter) Each(ctx context.Context, shard string, codec format.Codec, raw io.ReaderAt, sizeBytes int64, emit func(Unit) error) error {
	switch {
	case c.Single(codec):
		return c.game(shard, raw, sizeBytes, emit)
	case c.format.Name() == "lc0":
		return c.games(ctx, shard, raw, sizeBytes, emit)
	}
	return c.records(ctx, shard, codec, raw, sizeBytes, emit)
}

// errLarge returns the error for a unit that is too large.
func (c *Cutter) errLarge(sizeBytes int64) error {
	return fmt.Errorf("it has %d bytes, of at most %d: raise --unit-bytes", sizeBytes, c.most)
}

// game calls emit for a shard that is one game.
func (c *Cutter) game(shard string, raw io.ReaderAt, sizeBytes int64, emit func(Unit) error) error {
	u := Unit{Name: shard, File: path.Base(shard)}
	if sizeBytes > c.most {
		u.Err = c.errLarge(sizeBytes)
		return emit(u)
	}
	u.Member = make([]byte, sizeBytes)
	if _, err := io.ReadFull(io.NewSectionReader(raw, 0, sizeBytes), u.Member); err != nil {
		return err
	}
	return emit(u)
}

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
