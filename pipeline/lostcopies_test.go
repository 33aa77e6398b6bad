package pipeline

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// A read of the stream has records of many shards. Losing the copies of all of them at once, as
// when another mount drops its pages, does not affect readers.
func TestCopiesOfManyShardsAreLostAtOnce(t *testing.T) {
	shards, records := 200, 25
	if testing.Short() {
		shards = 60
	}
	w := served{dir: t.TempDir(), server: faultserver.New()}
	shape := synthetic.Shape{Format: "tar", RecordBytes: 4096, Seed: 1}
	for i := range uint64(shards) {
		var b bytes.Buffer
		require.NoError(t, shape.WriteShard(&b, i*uint64(records), uint64(records), nil))
		name := fmt.Sprintf("%03d.tar", i)
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, name), b.Bytes(), 0o644))
		w.server.PutBytes("train/"+name, b.Bytes())
	}
	h := httptest.NewServer(w.server)
	t.Cleanup(h.Close)
	w.url = h.URL + fmt.Sprintf("/train/{000..%03d}.tar", shards-1)
	local, s := testSpec(t, w.dir), cachedSpec(t, w)
	s.Read, s.MemoryBytes = spec.ReadScan, 2<<20
	for _, o := range []*spec.Order{&local.Order, &s.Order} {
		o.Shuffle = spec.ShuffleFull
	}
	d := open(t, s)
	require.NoError(t, d.Warm(t.Context(), func(int64, int64) {}))
	read := func(d *Dataset) (all [][]byte) {
		set, err := d.Set(t.Context(), 1, nil, s.Deal)
		require.NoError(t, err)
		for w := range s.Deal.Workers {
			all = append(all, readFile(t, set, w, stream.Data, stream.MaxReadBytes))
		}
		return all
	}
	want := read(open(t, local))
	mapped := func() uint64 { return d.Status().Fetch.RecordsMapped }
	require.Eventually(t, func() bool { // until most is mapped
		before := mapped()
		require.True(t, reflect.DeepEqual(want, read(d)))
		return mapped()-before > uint64(shards*records*3/4)
	}, 5*time.Minute, 10*time.Millisecond)
	files, err := filepath.Glob(filepath.Join(s.Cache.Dir, "v1", "*", "*.data"))
	require.NoError(t, err)
	require.Len(t, files, shards)
	for _, name := range files {
		require.NoError(t, os.Chtimes(name, time.Time{}, time.Now()))
	}
	require.True(t, reflect.DeepEqual(want, read(d)))
	require.Zero(t, d.Status().Fetch.Errors)
}
