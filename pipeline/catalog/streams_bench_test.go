package catalog

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/web"
)

// BenchmarkStreams indexes 64 shards of 32 MiB on a server in this process, whose first byte
// arrives after 20 ms, and reads the same shards with net/http alone, 32 at a time. The metric
// "of-bare" is the pass's speed as a fraction of that. The CPU time includes the server's.
func BenchmarkStreams(b *testing.B) {
	for _, shape := range []synthetic.Shape{
		{Format: "tar", RecordBytes: 117_000}, {Format: "tar", RecordBytes: 12_500}, {Format: "tar", RecordBytes: 4096}, {Format: "tfrecord", RecordBytes: 12_500}, {Format: "jsonl", RecordBytes: 1000},
	} {
		b.Run(fmt.Sprintf("format=%s/record=%d", shape.Format, shape.RecordBytes), func(b *testing.B) {
			const shards = 64
			var shard bytes.Buffer
			require.NoError(b, shape.WriteShard(&shard, 0, 32*mib/uint64(shape.RecordBytes), nil))
			s := newSlowServer(b, shard.Bytes(), 20*time.Millisecond)
			url := fmt.Sprintf("%s/{000..%03d}%s", s.URL, shards-1, shape.Extension())
			b.SetBytes(int64(shards * shard.Len()))
			var bare, pass spent
			for b.Loop() {
				bare.add(func() { s.readAll(b, shards, 32) })
				pass.add(func() { indexAll(b, url) })
			}
			mb := float64(b.N*shards*shard.Len()) / 1e6
			b.ReportMetric(mb/bare.time.Seconds(), "bare-MB/s")
			b.ReportMetric(mb/pass.time.Seconds(), "pass-MB/s")
			b.ReportMetric(bare.time.Seconds()/pass.time.Seconds(), "of-bare")
			b.ReportMetric(1074/mb*bare.cores.Seconds(), "bare-cpu-s/GiB")
			b.ReportMetric(1074/mb*pass.cores.Seconds(), "pass-cpu-s/GiB")
		})
	}
}

// spent is the time taken by runs.
type spent struct{ time, cores time.Duration }

func (s *spent) add(run func()) {
	began, cores := time.Now(), processorTime()
	run()
	s.time, s.cores = s.time+time.Since(began), s.cores+processorTime()-cores
}

// processorTime returns the CPU time of this process.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// slowServer serves the same bytes for all names, after a delay.
type slowServer struct{ *httptest.Server }

func newSlowServer(b *testing.B, data []byte, delay time.Duration) slowServer {
	s := slowServer{httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			time.Sleep(delay)
		}
		w.Header().Set("ETag", `"one"`)
		http.ServeContent(w, r, "", time.Unix(1e9, 0), bytes.NewReader(data))
	}))}
	b.Cleanup(s.Close)
	return s
}

// readAll reads shards with net/http, atATime concurrently.
func (s slowServer) readAll(b *testing.B, shards, atATime int) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atATime, DisableCompression: true}}
	defer client.CloseIdleConnections()
	names := make(chan int)
	var all sync.WaitGroup
	for range atATime {
		all.Go(func() {
			p := make([]byte, 256<<10)
			for range names {
				r, err := client.Get(s.URL + "/x")
				if err != nil {
					b.Error(err)
					continue
				}
				if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, p); err != nil {
					b.Error(err)
				}
				_ = r.Body.Close()
			}
		})
	}
	for i := range shards {
		names <- i
	}
	close(names)
	all.Wait()
}

// indexAll opens a dataset on a web server, without an index.
func indexAll(b *testing.B, url string) {
	parsed, err := target.Parse(url)
	require.NoError(b, err)
	transport, err := web.NewTransport(web.Settings{Local: true})
	require.NoError(b, err)
	defer transport.Close()
	source, err := web.Open(b.Context(), *parsed.Web, web.Options{Transport: transport})
	require.NoError(b, err)
	engine, err := remote.New(source, remote.DefaultConfig())
	require.NoError(b, err)
	defer func() { require.NoError(b, engine.Close()) }()
	t, err := discover.At(source.Name(), discover.Choice{Names: parsed.Web.Written})
	require.NoError(b, err)
	c, err := Open(b.Context(), Config{
		Dataset: url, Target: &t, Format: spec.Format{Name: formatOf(url)}, OnCorrupt: spec.CorruptFail, IndexDir: b.TempDir(),
		Profile: storage.DefaultProfile(storage.KindWeb), MemoryBytes: 1 << 30,
		OpenStorage: func(string, string) (storage.Storage, error) { return engine, nil },
	})
	require.NoError(b, err)
	require.Positive(b, c.Records())
	require.NoError(b, c.Close())
}

func formatOf(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }
