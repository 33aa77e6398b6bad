package synthetic

import (
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// compressor compresses what is written to it into one member or frame, as gzip, zstd and lz4 do by
// default.
func (s Shape) compressor(out io.Writer) (io.WriteCloser, error) {
	switch s.Codec {
	case "gz":
		return gzip.NewWriterLevel(out, gzip.DefaultCompression)
	case "zst":
		return zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
	case "lz4":
		return lz4.NewWriter(out), nil
	}
	return plain{out}, nil
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }
