// Package units takes the shards of a dataset apart into the units that a filter is given,
// and puts what the filter makes of them back together.
//
//	shard ──Each──► Unit{Name, Member} ──Data──► what a filter gets ──► a reply
//	                                                                     │ Check
//	shard of the same format and container ◄──Writer── member ◄──Member──┘
//
//	format    a unit                     its data                      its file
//	lc0       a game                     its frames, decoded           the .gz, named as in the shard
//	tar       a sample                   its members, as a tar         a .tar of them
//	jsonl     a line                     the line, with its end        the same
//	lines     a line                     the same                      the same
//	tfrecord  a record                   its data, without checksums   the same
//
// A shard of npy, of records of one size, or of any other format that an own program reads
// can be filtered as a whole.
package units

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// Unit is one unit of a shard.
type Unit struct {
	// Number counts the units of a shard, from 0.
	Number int
	// Name is the unit's name in the dataset: the shard's path, and what it is there.
	Name string
	// File is the name of its file where a filter is given files. It has no slash. Games
	// have their own names, which may not be unique.
	File string
	// Member is the unit as it is in the shard's container: the game's .gz, the record.
	Member []byte
	// Err says why the unit could not be read: a damaged or a large one. There is no
	// Member then.
	Err error

	path string // of a game in its tar
}

// Cutter takes shards of one format apart. It is immutable, and safe for concurrent use.
type Cutter struct {
	format unpack.Format
	kind   kind
	most   int64
}

// kind is what units are made of.
type kind struct {
	extension string // of a unit's file; games have their own
	decode    func(member []byte, most int64) ([]byte, error)
	file      func(member []byte) []byte
	check     func(f unpack.Format, data []byte) ([]byte, uint64, error)
	member    func(data []byte) ([]byte, error)
}

// ErrWhole is wrapped by New's error for formats that have no units.
var ErrWhole = errors.New("its shards are filtered whole: use --each shard")

// New makes a Cutter of a format's shards. No unit may have more than mostBytes, decoded.
func New(format unpack.Format, mostBytes int64) (*Cutter, error) {
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

// Single says whether a shard of that name is one unit: a game in a file of its own.
func (c *Cutter) Single(codec unpack.Codec) bool { return codec != nil && codec.Name() == gameCodec }

// Data is what a filter is given of a unit. Errors are damage of the unit.
func (c *Cutter) Data(u Unit) ([]byte, error) { return c.kind.decode(u.Member, c.most) }

// FileOf is the contents of a unit's file.
func (c *Cutter) FileOf(u Unit) []byte { return c.kind.file(u.Member) }

// FromData makes the member of what a filter has made of a unit's data. records is how
// many records it has. Errors say why the format refuses it.
func (c *Cutter) FromData(data []byte) (member []byte, records uint64, err error) {
	data, records, err = c.kind.check(c.format, data)
	if err != nil {
		return nil, 0, err
	}
	member, err = c.kind.member(data)
	return member, records, err
}

// FromFile is FromData of a file. A game's file is kept as it is.
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

// Each calls emit for each unit of a shard of sizeBytes, in order. A unit belongs to the
// callee. Damage of the shard, which ends it, and errors of emit and of reading are
// returned.
func (c *Cutter) Each(ctx context.Context, shard string, codec unpack.Codec, raw io.ReaderAt, sizeBytes int64, emit func(Unit) error) error {
	switch {
	case c.Single(codec):
		return c.game(shard, raw, sizeBytes, emit)
	case c.format.Name() == "lc0":
		return c.games(ctx, shard, raw, sizeBytes, emit)
	}
	return c.records(ctx, shard, codec, raw, sizeBytes, emit)
}

// errLarge is of a unit that is too large.
func (c *Cutter) errLarge(sizeBytes int64) error {
	return fmt.Errorf("it has %d bytes, of at most %d: raise --unit-bytes", sizeBytes, c.most)
}

// game is a shard that is one game.
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
