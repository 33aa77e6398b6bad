package units

import (
	"bytes"
	"context"
	"io"
	"path"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/encode"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
)

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
