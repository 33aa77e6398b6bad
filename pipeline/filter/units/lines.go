package units

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

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
