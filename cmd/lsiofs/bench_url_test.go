package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
)

func TestBenchComparesWebServerWithBareRequests(t *testing.T) {
	tmp := benchTemp(t)
	data := made(t, "tar", "--records", "400", "--bytes", "12500", "--shards", "2")
	url, bodies := atServer(t, data)
	out := ok(t, append([]string{"bench", url + "?sig=secret", "--json"}, small(t)...)...)
	require.NotContains(t, out.stdout+out.stderr, "secret")
	var r bench.Report
	require.NoError(t, json.Unmarshal([]byte(out.stdout), &r))
	require.EqualValues(t, 400, r.Dataset.Records)
	require.NotEmpty(t, r.Notes)
	require.Len(t, r.Rows, 3)
	for _, row := range r.Rows {
		require.Empty(t, row.NotMeasured, row.ID)
		require.Positive(t, row.GiBPerSecond.Median, row.ID)
		require.Positive(t, row.CPUPerGiB.Median, row.ID)
	}
	require.Positive(t, r.Rows[1].Ratio.Median)
	require.Positive(t, bodies())
	nothingLeft(t, tmp)

	text := ok(t, append([]string{"bench", url}, small(t)...)...).stdout
	for _, words := range []string{"400 records of", "bare requests of 256 KiB, 128 at a time", "cat | reader, nothing kept", "from the disk cache"} {
		require.Contains(t, text, words)
	}
	// Shards smaller than a chunk.
	few, _ := atServer(t, made(t, "tar", "--records", "8", "--bytes", "5000", "--shards", "2"))
	ok(t, append([]string{"bench", few}, small(t)...)...)
}
