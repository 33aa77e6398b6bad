package format_test

import (
	"bytes"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/zstd"
)

// meeting is a codec whose decoders wait in NewDecoder until there are as many of them as the
// capacity of arrivals.
type meeting struct {
	zstd.Codec
	arrivals chan struct{}
	late     *atomic.Bool
}

func (m meeting) NewDecoder(raw io.Reader, rawOffset int64) (format.Decoder, error) {
	m.arrivals <- struct{}{}
	for deadline := time.Now().Add(2 * time.Minute); len(m.arrivals) < cap(m.arrivals); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			m.late.Store(true)
			break
		}
	}
	return m.Codec.NewDecoder(raw, rawOffset)
}

type endless struct{}

func (endless) TryTake(int64) bool { return true }
func (endless) Give(int64)         {}

func TestMembersAreDecodedConcurrently(t *testing.T) {
	m := meeting{arrivals: make(chan struct{}, 4), late: new(atomic.Bool)}
	member := formattest.Zstd([]byte("some text"))
	raw := slices.Concat(member, member, member, member)
	d, err := format.Ahead{MemberCodec: m, InTurn: m, Room: endless{}}.NewDecoder(bytes.NewReader(raw), 0)
	require.NoError(t, err)
	defer d.Close()
	for i := range 4 {
		at, err := d.Next()
		require.NoError(t, err)
		require.Equal(t, int64(i*len(member)), at)
	}
	require.False(t, m.late.Load(), "members waited for each other")
}
