package tune

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/tune/probe"
)

func TestTuneStoresServiceMeasurementsByEndpoint(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const secret = "zqxjplanted"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "x", time.Unix(1e9, 0), bytes.NewReader(make([]byte, 1<<20)))
	}))
	defer server.Close()
	// MostBytes ends the measurement. The time is long in case the machine is so busy that nothing
	// arrives within a second.
	o := Options{Path: server.URL + "/a/000.tar?sig=" + secret, Seconds: 30, Trials: func() probe.Plan {
		return probe.Plan{ReadBytes: []int64{64 << 10, 256 << 10}, Depths: []int{1, 2}, MostBytes: 64 << 20}
	}}
	var out, errs bytes.Buffer
	run := func(json bool) error {
		out.Reset()
		u := terminal.New(&out, &errs)
		u.JSON = json
		err := Run(t.Context(), o, u)
		require.NotContains(t, out.String()+errs.String(), secret)
		return err
	}
	o.DryRun = true
	require.NoError(t, run(true))
	var r ServiceReport
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	require.Len(t, r.Cells, 4)
	require.Empty(t, r.File)
	o.DryRun = false
	require.NoError(t, run(false))
	require.Contains(t, out.String(), "mounts of datasets at "+server.URL+" use it")

	o.Show, o.Path = true, server.URL+"/another/{0..9}.tar"
	require.NoError(t, run(false))
	require.Contains(t, out.String(), "endpoint "+server.URL)
	require.Contains(t, out.String(), "tuned")

	o.Show, o.Seconds = false, 61
	require.Equal(t, exit.Usage, exit.CodeOf(run(false)))
	o.Seconds = 1
	server.Close()
	err := run(false)
	require.Equal(t, exit.Dataset, exit.CodeOf(err))
	require.ErrorContains(t, err, "lsiofs doctor URL")
	dir, err := filesystem.ProfileDir()
	require.NoError(t, err)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
}

func TestReportOfServiceMeasurements(t *testing.T) {
	cell := func(kib int64, depth int, rate float64) filesystem.Measurement {
		return filesystem.Measurement{ReadBytes: kib << 10, Depth: depth, BytesPerSecond: rate}
	}
	r := ServiceReport{
		Place: filesystem.Endpoint(storage.KindObject, "s3://bucket/train"),
		Rates: probe.Rates{
			Cells: []filesystem.Measurement{cell(256, 16, 1e8), cell(256, 256, 9e8), cell(16<<10, 16, 1e9)}, Left: []filesystem.Measurement{cell(16<<10, 256, 0)},
			Objects: 147, Bytes: 2 << 30, Requests: 12_345, Throttled: 7, Seconds: 59.6,
		},
		File: "/cache/lsiofs/storage-1.json",
	}
	r.Profile, r.Reasons = probe.Derive(storage.KindObject, r.Cells, time.Unix(1e9, 0).UTC())
	r.Reasons = append(r.Reasons, r.further(false)...)
	var out bytes.Buffer
	require.NoError(t, r.write("s3://bucket/train", terminal.New(&out, &out)))
	goldentest.Equal(t, "tune-service.txt", out.String())
}
