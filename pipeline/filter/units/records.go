package units

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/encode"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/format/tfrecord"
)

// records calls emit for the records of formats whose records are units. The shard is read twice:
// to find its records and check that it is intact, then for their bytes.
func (c *Cutter) records(ctx context.Context, shard string, codec format.Codec, raw io.ReaderAt, sizeBytes int64, emit func(Unit) error) error {
	var extents packed
	sum, err := format.Scan(ctx, c.format, codec, raw, sizeBytes, extents.add, extents.reset)
	if err != nil {
		return err
	}
	if sum.Damage != nil {
		return sum.Damage
	}
	decoded := io.Reader(io.NewSectionReader(raw, 0, sizeBytes))
	if codec != nil {
		d, err := format.NewDecoded(codec, raw, sizeBytes, format.Entry{})
		if err != nil {
			return err
		}
		defer d.Close()
		decoded = d
	}
	src := newSource(decoded)
	for n := 0; ; n++ {
		gap, size, ok := extents.next()
		if !ok {
			return ctx.Err()
		}
		u := Unit{Number: n, Name: fmt.Sprintf("%s/%d", shard, n), File: fmt.Sprintf("%09d%s", n, c.kind.extension)}
		err := src.Discard(gap)
		if err == nil {
			u.Member, u.Err, err = c.record(src, size, sum.DecodedBytes)
		}
		if err != nil {
			return err
		}
		if err := emit(u); err != nil {
			return err
		}
	}
}

// record reads one record. If the last line has no newline, it gets one.
func (c *Cutter) record(src *source, size, decodedBytes int64) (record []byte, refused, err error) {
	within := min(size, decodedBytes-src.OffsetBytes())
	if size > c.most {
		return nil, c.errLarge(size), src.Discard(within)
	}
	if record, err = src.take(within); err != nil {
		return nil, nil, err
	}
	if within < size {
		record = append(record, '\n')
	}
	if v, ok := c.format.(format.Verifier); ok {
		refused = v.Verify(record)
	}
	return record, refused, nil
}

// packed is a list of extents: for each the gap after the previous one, and its size.
type packed struct {
	text []byte
	end  int64
}

func (p *packed) add(e format.Extent) error {
	if e.OffsetBytes < p.end {
		return errors.New("records overlap: such shards can only be filtered whole (--each shard)")
	}
	p.text = binary.AppendUvarint(p.text, uint64(e.OffsetBytes-p.end))
	p.text = binary.AppendUvarint(p.text, uint64(e.SizeBytes))
	p.end = e.OffsetBytes + e.SizeBytes
	return nil
}

func (p *packed) reset() { p.text, p.end = p.text[:0], 0 }

func (p *packed) next() (gap, size int64, ok bool) {
	if len(p.text) == 0 {
		return 0, 0, false
	}
	g, n := binary.Uvarint(p.text)
	s, m := binary.Uvarint(p.text[n:])
	p.text = p.text[n+m:]
	return int64(g), int64(s), true
}

func plain(member []byte, _ int64) ([]byte, error) { return member, nil }
func same(member []byte) []byte                    { return member }
func keep(data []byte) ([]byte, error)             { return data, nil }

// archiveEnd ends a tar.
var archiveEnd [1024]byte

// archive returns a tar of a sample's members.
func archive(member []byte) []byte { return append(member[:len(member):len(member)], archiveEnd[:]...) }

// checkSample returns the samples in a tar.
func checkSample(f format.Format, data []byte) ([]byte, uint64, error) {
	var from, to int64
	records := uint64(0)
	err := f.Index(context.Background(), newMemory(data), func(e format.Extent) error {
		if records == 0 {
			from = e.OffsetBytes
		}
		records, to = records+1, e.OffsetBytes+e.SizeBytes
		return nil
	})
	if err == nil && records == 0 {
		err = errors.New("it is a tar without a sample")
	}
	if err != nil {
		return nil, 0, err
	}
	return data[from:to], records, nil
}

// checkLines accepts one line or more.
func checkLines(f format.Format, data []byte) ([]byte, uint64, error) {
	if n := len(data); n > 0 && data[n-1] != '\n' {
		data = append(data, '\n')
	}
	records := uint64(0)
	err := f.Index(context.Background(), newMemory(data), func(format.Extent) error {
		records++
		return nil
	})
	if err == nil && records == 0 {
		err = errors.New("it has no line")
	}
	return data, records, err
}

func checkJSON(f format.Format, data []byte) ([]byte, uint64, error) {
	data, records, err := checkLines(f, data)
	if err != nil {
		return nil, 0, err
	}
	for line := range bytes.Lines(data) {
		if err := checkJSONLine(line); err != nil {
			return nil, 0, err
		}
	}
	return data, records, nil
}

func payload(member []byte, _ int64) ([]byte, error) { return payloadOf(member), nil }

func payloadOf(member []byte) []byte { return tfrecord.Data(member) }

func checkAny(_ format.Format, data []byte) ([]byte, uint64, error) { return data, 1, nil }

func frame(data []byte) ([]byte, error) {
	return tfrecord.AppendFrame(make([]byte, 0, len(data)+16), data), nil
}

// CheckJSON reads a shard of lines, and returns an error for a line that is not JSON. A line has at
// most mostBytes, which bounds the memory too. Blank lines are skipped.
func CheckJSON(ctx context.Context, codec format.Codec, raw io.ReaderAt, sizeBytes, mostBytes int64) error {
	decoded := io.Reader(io.NewSectionReader(raw, 0, sizeBytes))
	if codec != nil {
		d, err := format.NewDecoded(codec, raw, sizeBytes, format.Entry{})
		if err != nil {
			return err
		}
		defer d.Close()
		decoded = d
	}
	lines := bufio.NewReaderSize(decoded, 64<<10)
	var line []byte
	for n := 1; ; n++ {
		line = line[:0]
		for {
			part, err := lines.ReadSlice('\n')
			if line = append(line, part...); int64(len(line)) > mostBytes {
				return fmt.Errorf("line %d has more than %d bytes: raise --unit-bytes", n, mostBytes)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if err != nil && err != io.EOF {
				return err
			}
			break
		}
		if len(line) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := checkJSONLine(line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

func checkJSONLine(line []byte) error {
	if len(bytes.TrimSpace(line)) > 0 && !json.Valid(line) {
		return fmt.Errorf("%.40q is not a line of JSON", line)
	}
	return nil
}

// games calls emit for the members of a tar of games.
func (c *Cutter) games(ctx context.Context, shard string, raw io.ReaderAt, sizeBytes int64, emit func(Unit) error) error {
	src := newSource(io.NewSectionReader(raw, 0, sizeBytes))
	members := tar.NewMembers(src)
	for n := 0; ; {
		m, err := members.Next(ctx)
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		name := string(m.Path)
		base := path.Base(name)
		if !m.Regular || len(base) <= len(".gz") || !strings.HasSuffix(base, ".gz") {
			continue // the format skips them too
		}
		u := Unit{Number: n, Name: shard + "/" + name, File: base, path: name}
		if m.SizeBytes > c.most {
			u.Err = c.errLarge(m.SizeBytes)
		} else if u.Member, err = src.take(m.SizeBytes); err != nil {
			return err
		} else {
			members.Consumed(m.SizeBytes)
		}
		if err := emit(u); err != nil {
			return err
		}
		n++
	}
}

// gunzip decodes a game.
func gunzip(member []byte, most int64) ([]byte, error) {
	d, err := format.NewDecoded(lc0.Game{}, bytes.NewReader(member), int64(len(member)), format.Entry{})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return readAll(d, most)
}

// gzipGame returns a game's file.
func gzipGame(data []byte) ([]byte, error) {
	var file bytes.Buffer
	w, err := encode.New(lc0.Game{}, &file)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	return file.Bytes(), err
}

// checkGame checks that data is a game.
func checkGame(f format.Format, data []byte) ([]byte, uint64, error) {
	records := uint64(0)
	err := f.Index(context.Background(), newMemory(data), func(format.Extent) error {
		records++
		return nil
	})
	return data, records, err
}

// Whole decodes a shard that is filtered as one unit. A tar of games stays as it is.
func Whole(codec format.Codec, raw io.ReaderAt, sizeBytes, mostBytes int64) ([]byte, error) {
	if codec == nil || codec.Name() == (lc0.Tar{}).Name() {
		return readAll(io.NewSectionReader(raw, 0, sizeBytes), mostBytes)
	}
	d, err := format.NewDecoded(codec, raw, sizeBytes, format.Entry{})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return readAll(d, mostBytes)
}
