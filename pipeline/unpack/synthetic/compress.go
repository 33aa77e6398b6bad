package synthetic

import (
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// compressor compresses what is written to it into one member or frame, as gzip
// and zstd do by default.
func (s Shape) compressor(out io.Writer) (io.WriteCloser, error) {
	switch s.Codec {
	case "gz":
		return gzip.NewWriterLevel(out, gzip.DefaultCompression)
	case "zst":
		return zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
	}
	return plain{out}, nil
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }
