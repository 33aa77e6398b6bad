package pipeline

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// served is a directory of shards, and the same shards at a web server.
type served struct {
	dir, url string
	names    []string
	server   *faultserver.Server
}

const servedShards = 4

// serveShards makes shards of records of some 3 KB.
func serveShards(t testing.TB, shape synthetic.Shape, records uint64) served {
	w := served{dir: t.TempDir(), server: faultserver.New()}
	shape.RecordBytes, shape.Seed = max(shape.RecordBytes, 3000), 1
	for i := range uint64(servedShards) {
		var b bytes.Buffer
		require.NoError(t, shape.WriteShard(&b, i*records, records, nil))
		name := fmt.Sprintf("%03d%s", i, shape.Extension())
		w.names = append(w.names, name)
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, name), b.Bytes(), 0o644))
		w.server.PutBytes("train/"+name, b.Bytes())
	}
	h := httptest.NewServer(w.server)
	t.Cleanup(h.Close)
	w.url = h.URL + "/train/{000..003}" + shape.Extension()
	return w
}

// sums are the checksums of all files of a set.
func sums(t testing.TB, d *Dataset, s spec.Spec, done []order.Done) (all []string) {
	set, err := d.Set(t.Context(), 1, done, s.Deal)
	require.NoError(t, err)
	for w := range s.Deal.Workers {
		for k := stream.Data; k <= stream.Offsets; k++ {
			all = append(all, fmt.Sprintf("%x", sha256.Sum256(readFile(t, set, w, k, 100_000))))
		}
	}
	return all
}

// A dataset at a web server is the same as its files on a disk: the same fingerprint, bytes and
// resumes in every shuffle.
func TestRemoteDatasetEqualsItsFiles(t *testing.T) {
	shuffles := map[string]func(*spec.Order){
		"none":      func(o *spec.Order) { o.Shuffle = spec.ShuffleNone },
		"reservoir": func(o *spec.Order) {},
		"block":     func(o *spec.Order) { o.Shuffle = spec.ShuffleBlock },
		"full":      func(o *spec.Order) { o.Shuffle = spec.ShuffleFull },
		"one lane":  func(o *spec.Order) { o.Lanes, o.SizeRecords = 1, 50 },
	}
	for name, shape := range map[string]synthetic.Shape{
		"tar":       {Format: "tar", RecordBytes: 4096},
		"tar.gz":    {Format: "tar", Codec: "gz", RecordBytes: 4096},
		"jsonl.zst": {Format: "jsonl", Codec: "zst"},
		"tfrecord":  {Format: "tfrecord"},
	} {
		t.Run(name, func(t *testing.T) {
			w := serveShards(t, shape, 60)
			for shuffle, change := range shuffles {
				if testing.Short() && shuffle != "reservoir" {
					continue // only one goroutine reads: under the race detector, the order of requests makes no difference
				}
				s := testSpec(t, w.dir)
				change(&s.Order)
				local := open(t, s)
				done := []order.Done{order.First(50, s.Order)}
				want, rest := sums(t, local, s, nil), sums(t, local, s, done)

				s.Dataset, s.IndexDir = w.url, t.TempDir()
				d := open(t, s)
				require.Equal(t, local.Fingerprint(), d.Fingerprint(), shuffle)
				require.Equal(t, want, sums(t, d, s, nil), shuffle)
				require.Equal(t, rest, sums(t, d, s, done), "%s, what is left of a checkpoint of the directory", shuffle)
				st := d.Status().Remote
				require.Positive(t, st.Requests["206"]+st.Requests["200"], "%v", st.Requests)
				require.Zero(t, st.PriceDollars, "web servers have no price list")
				report, err := d.VerifyShards(t.Context(), nil)
				require.NoError(t, err)
				require.Empty(t, report.Findings)
			}
		})
	}
}

// Reads fail in the ways in which services fail, and no byte changes. A response that is wrong
// three times in a row is refused, so there are two of these.
func TestServerFaultsChangeNoByte(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 60)
	s := testSpec(t, w.dir)
	want := sums(t, open(t, s), s, nil)
	for i, fault := range []faultserver.Fault{faultserver.Status(500, ""), faultserver.Reset(1000), faultserver.Whole()} {
		w.server.On(faultserver.Method("GET"), fault).Share(0.1, uint64(i))
	}
	w.server.On(faultserver.Method("GET"), faultserver.Short(1)).After(3).Times(2)
	s.Dataset, s.IndexDir = w.url, t.TempDir()
	d := open(t, s)
	require.Equal(t, want, sums(t, d, s, nil))
	require.NotEmpty(t, d.Status().Remote.Retries)
}

// An object that is replaced while it is read gives an error that reports this, and never the bytes
// of another version.
func TestChangedObjectIsAnError(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 60)
	s := testSpec(t, w.dir)
	s.Deal.Workers = 1
	want := readFirst(t, open(t, s), s, 1<<30)

	s.Dataset, s.IndexDir = w.url, t.TempDir()
	s.MemoryBytes = 1 << 20 // little of it is read ahead
	d := open(t, s)
	begun := readFirst(t, d, s, 20_000)
	require.Equal(t, want[:len(begun)], begun)
	for _, name := range w.names {
		w.server.Change("train/" + name)
	}
	set, err := d.Set(t.Context(), 0, nil, s.Deal)
	require.NoError(t, err)
	h := set.Open(0, stream.Data)
	defer h.Close()
	var r stream.Reply
	read := 0
	for {
		if err = h.ReadAt(t.Context(), &r, int64(read), 10_000); err != nil || r.Len() == 0 {
			break
		}
		for _, p := range r.Slices {
			require.True(t, bytes.Equal(want[read:read+len(p)], p), "bytes from %d on", read)
			read += len(p)
		}
		r.Release()
	}
	require.ErrorIs(t, err, storage.ErrChanged)
	require.ErrorContains(t, err, "mount or run again")
	require.Less(t, read, len(want))

	s.IndexDir = t.TempDir()
	require.Equal(t, want, readFirst(t, open(t, s), s, 1<<30), "which helps")
}

// readFirst reads at least so many bytes of epoch 0, or all of it.
func readFirst(t testing.TB, d *Dataset, s spec.Spec, least int) (all []byte) {
	set, err := d.Set(t.Context(), 0, nil, s.Deal)
	require.NoError(t, err)
	h := set.Open(0, stream.Data)
	defer h.Close()
	var r stream.Reply
	for len(all) < least {
		require.NoError(t, h.ReadAt(t.Context(), &r, int64(len(all)), 10_000))
		if r.Len() == 0 {
			break
		}
		for _, p := range r.Slices {
			all = append(all, p...)
		}
		r.Release()
	}
	return all
}

// What can't be read correctly is refused with an explanation when the dataset is opened, and names
// that were given with secrets appear without them.
func TestInvalidRemoteDatasetsAreRefusedWithExplanation(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 20)
	w.server.PutBytes("train/list.txt", []byte(strings.Join(w.names, "\n")))
	w.server.PutBytes("train/bare.tar", w.server.Bytes("train/000.tar", 0, 20<<10))
	w.server.Bare("train/bare.tar")
	base := strings.TrimSuffix(w.url, "{000..003}.tar")
	for _, c := range []struct {
		dataset string
		change  func(*spec.Spec)
		words   string
	}{
		{w.url, func(s *spec.Spec) { s.Format.Name = "files" }, "--format files does not support buckets and web servers"},
		{w.url, func(s *spec.Spec) {
			s.Format.Arrays = []spec.Array{{Name: "x", Pattern: "x"}, {Name: "y", Pattern: "y"}}
		}, "--array does not support buckets and web servers"},
		{base + "bare.tar", nil, "--unversioned"},
		{base + "{000..004}.tar", nil, "004.tar"},
		{base + "none.tar", nil, "404 Not Found"},
		{base, nil, "does not list its folders"},
		{base + "*.tar", nil, "is no pattern here"},
		{strings.Replace(w.url, "//", "//someone:secret@", 1), nil, "use https://"},
		{w.url, func(s *spec.Spec) { s.Remote.CAFile = "/nowhere" }, "--ca-file"},
		{w.url, func(s *spec.Spec) { s.Remote.Connections = 0 }, "--connections (0)"},
		{w.url, func(s *spec.Spec) { s.Remote.Hedge = "always" }, "--hedge"},
		{"s3://bucket/", func(s *spec.Spec) { s.Remote.Endpoint = "nonsense" }, "--endpoint"},
	} {
		s := testSpec(t, c.dataset+"?sig=secret")
		if strings.HasPrefix(c.dataset, "s3:") {
			s.Dataset = c.dataset
		}
		if c.change != nil {
			c.change(&s)
		}
		_, err := Open(t.Context(), s, Options{})
		require.ErrorContains(t, err, c.words, c.dataset)
		require.NotContains(t, err.Error(), "secret", c.dataset)
		require.LessOrEqual(t, strings.Count(err.Error(), base), 1, "%v: a dataset is named once", err)
	}

	s := testSpec(t, base+"list.txt?sig=secret")
	d := open(t, s)
	require.Equal(t, servedShards, d.Catalog().Shards())
	text, err := d.Describe()
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret")
	require.Contains(t, string(text), base+"list.txt")
	require.Equal(t, strings.TrimSuffix(base, "/"), d.Catalog().Root())

	s = testSpec(t, base+"bare.tar")
	s.OnCorrupt, s.Remote.Unversioned = spec.CorruptSkip, true
	require.Positive(t, open(t, s).Records())
}

// A request that gets no answer is made a second time, unless hedging is off.
func TestRequestsAreHedgedUnlessDisabled(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 20)
	s := testSpec(t, w.url)
	s.Remote.Hedge = spec.HedgeOff
	require.False(t, (&mount{spec: s}).remoteConfig().Hedge)
	s.Remote.Hedge = spec.HedgeAuto
	d := open(t, s)
	w.server.On(faultserver.Method("GET"), faultserver.Hang()).Times(1)
	sums(t, d, s, nil)
	require.Positive(t, d.Status().Remote.HedgesWon)
}

// A server without range requests is refused when something large is read from it.
func TestServerWithoutRangesIsRefused(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 9 << 20}, 2)
	w.server.On(faultserver.Method("GET"), faultserver.Whole())
	_, err := Open(t.Context(), testSpec(t, w.url), Options{})
	require.ErrorContains(t, err, "does not serve ranges")
}

// The stored index is found by the canonical name, whatever secrets come with it, and nothing is
// read again.
func TestIndexOfRemoteDatasetIsReused(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 20)
	s := testSpec(t, w.url+"?sig=1")
	first := open(t, s).Fingerprint()
	w.server.On(faultserver.Method("GET"), faultserver.Status(404, ""))
	s.Dataset = w.url + "?sig=2"
	require.Equal(t, first, open(t, s).Fingerprint())
}
