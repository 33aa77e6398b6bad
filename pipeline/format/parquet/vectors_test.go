package parquet

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	tarformat "github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/rows"
)

// shard is a file, opened, with columns selected.
type shard struct {
	file    *File
	columns []rows.Column
	cursor  *Cursor
}

func openShard(data []byte, flag string, o Options) (*shard, error) {
	f, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	var items []rows.Item
	if flag != "" {
		if items, err = rows.ParseColumns(flag); err != nil {
			return nil, err
		}
	}
	columns, err := rows.Resolve(f.Schema, items)
	if err != nil {
		return nil, err
	}
	s, err := f.Select(columns)
	if err != nil {
		return nil, err
	}
	return &shard{f, columns, s.NewCursor(bytes.NewReader(data), o)}, nil
}

// each calls row for all rows from a point of a row group to its end.
func (s *shard) each(group int, p Point, row func(b *rows.Batch, r int) error) error {
	if err := s.cursor.Open(group, p); err != nil {
		return err
	}
	for {
		b, err := s.cursor.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := b.Check(s.columns); err != nil {
			panic(err)
		}
		for r := range b.Rows {
			if err := row(b, r); err != nil {
				return err
			}
		}
	}
}

// lines returns the rows of all row groups as lines.
func lines(data []byte, flag string, o Options) ([]byte, error) {
	s, err := openShard(data, flag, o)
	if err != nil {
		return nil, err
	}
	p := rows.NewJSONL(s.columns, 1<<30)
	var out []byte
	for g := range s.file.Groups() {
		err := s.each(g, Point{}, func(b *rows.Batch, r int) (err error) {
			out, err = p.Append(out, b, r, 0)
			return err
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func wanted(t *testing.T, name string) string {
	data, err := os.ReadFile(filepath.Join("../../rows/testdata", name))
	require.NoError(t, err)
	return string(data)
}

func vector(t *testing.T, name string) []byte {
	data, err := os.ReadFile(filepath.Join("testdata/vectors", name))
	require.NoError(t, err)
	return data
}

// present appends the records of a vector's shard, and returns their number.
func present(t *testing.T, dst, data []byte, flag string, presenter func(s *shard) rows.Presenter) ([]byte, int64) {
	s, err := openShard(data, flag, Options{})
	require.NoError(t, err)
	p := presenter(s)
	n := int64(0)
	for g := range s.file.Groups() {
		require.NoError(t, s.each(g, Point{}, func(b *rows.Batch, r int) error {
			var err error
			dst, err = p.Append(dst, b, r, n)
			n++
			return err
		}))
	}
	return dst, n
}

// The shards and streams were written by another program. The streams are those of the vectors of
// package rows.
func TestVectors(t *testing.T) {
	jsonl := func(s *shard) rows.Presenter { return rows.NewJSONL(s.columns, 1<<30) }
	for name, flag := range map[string]string{"parquet-jsonl.jsonl": "", "parquet-columns.jsonl": "text,i=id"} {
		out, _ := present(t, nil, vector(t, "train-00000-of-00002.parquet"), flag, jsonl)
		out, _ = present(t, out, vector(t, "train-00001-of-00002.parquet"), flag, jsonl)
		require.Equal(t, wanted(t, name), string(out))
	}
	for name, flag := range map[string]string{"parquet-tar.tar": "", "parquet-tar-named.tar": "jpg=image,txt=caption,cls=label"} {
		out, n := present(t, nil, vector(t, "train.0.parquet"), flag, func(s *shard) rows.Presenter {
			p, err := rows.NewTar(s.columns, "d.v1/train.0.parquet", 1<<30)
			require.NoError(t, err)
			return p
		})
		require.Equal(t, wanted(t, name), string(out)+string(tarformat.Format{}.Epilogue(uint64(n))))
	}
	var p *rows.NPY
	out, n := present(t, nil, vector(t, "a.parquet"), "", func(s *shard) rows.Presenter {
		var err error
		p, err = rows.NewNPY(s.columns, nil, 1<<30)
		require.NoError(t, err)
		return p
	})
	format, err := p.Rows()
	require.NoError(t, err)
	require.Equal(t, wanted(t, "parquet-npy.npy"), string(format.Prologue(uint64(n)))+string(out))
}

func TestVectorsOfTokens(t *testing.T) {
	for name, length := range map[string]string{"parquet-pack.npy": "4", "parquet-pack-labels.npy": "4+1"} {
		pack, err := rows.ParsePack(length)
		require.NoError(t, err)
		pack.HasEOS = true
		var out []byte
		var packer *rows.Packer
		for _, path := range []string{"t-0.parquet", "t-1.parquet"} {
			s, err := openShard(vector(t, path), "input_ids", Options{})
			require.NoError(t, err)
			packer, err = rows.NewPacker(pack, s.columns)
			require.NoError(t, err)
			var decoded []byte
			for g := range s.file.Groups() {
				require.NoError(t, s.each(g, Point{}, func(b *rows.Batch, r int) (err error) {
					decoded, err = packer.Append(decoded, b, r)
					return err
				}))
			}
			for i := range packer.Records(packer.Count()) {
				at, size := packer.Extent(i, packer.TokenBytes())
				out = append(out, decoded[at:at+size]...)
			}
		}
		format, err := packer.Rows()
		require.NoError(t, err)
		require.Equal(t, wanted(t, name), string(format.Prologue(uint64(int64(len(out))/format.RowBytes())))+string(out))
	}
}
