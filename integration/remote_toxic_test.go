package integration

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/integration/servers"
)

// toxics are network problems between lsiofs and its servers: toxiproxy's names, the share of
// connections that have them, and their attributes. toxiproxy draws the connections of a share:
// with its seed they are always the same ones of a test, in the order in which they are opened.
var toxics = []struct {
	name, what string
	share      float64
	attributes map[string]int
}{
	{"latency", "answers come late", 1, map[string]int{"latency": 40, "jitter": 30}},
	{"bandwidth", "a slow line", 1, map[string]int{"rate": 2000}}, // KB/s
	{"reset_peer", "connections are reset", 0.5, map[string]int{"timeout": 30}},
	{"timeout", "connections say nothing, and end", 0.5, map[string]int{"timeout": 100}},
	{"slicer", "answers come in crumbs", 1, map[string]int{"average_size": 400, "size_variation": 300, "delay": 20}},
	{"limit_data", "connections end after some bytes", 1, map[string]int{"bytes": 100_000}},
}

// Whatever a network does to connections, the index and the stream are right, without an error: for
// a bucket and for a web server, with records that are read individually and with compressed
// shards.
func TestBytesAreCorrectDespiteNetworkFaults(t *testing.T) {
	serve.Tier(t, serve.CI)
	for _, d := range []dataset{makeDataset(t, formatNamed("tar"), codecs[0], 12, 7), withCodec(t, "jsonl", ".zst")} {
		here, bucket, web := places(t, d)
		args := withoutWorkers(usual().flags())
		want := toolOK(t, append([]string{"cat", here.dir}, args...)...)
		s3 := strings.TrimPrefix(os.Getenv("AWS_ENDPOINT_URL"), "http://")
		nginx, path, _ := strings.Cut(strings.TrimPrefix(web.dir, "http://"), "/")
		for _, kind := range []string{"s3", "nginx"} {
			for _, toxic := range toxics {
				t.Run(kind+" of "+d.name+", "+toxic.what, func(t *testing.T) {
					// Each has its own proxy, which draws from the start of its sequence.
					p := servers.NewToxiproxy(t, serve.Seed(t))
					target := bucket.dir
					if kind == "s3" {
						t.Setenv("AWS_ENDPOINT_URL", "http://"+p.Before(kind, s3))
					} else {
						target = "http://" + p.Before(kind, nginx) + "/" + path
					}
					p.Add(kind, toxic.name, toxic.share, toxic.attributes)
					// A separate directory, so that the shards are indexed through it, too.
					r := tool(t, append([]string{"cat", target, "--index-dir", t.TempDir(), "--read-timeout", "3m"}, args...)...)
					require.Zero(t, r.code, r.stderr)
					requireSameBytes(t, want, r.stdout, "%s", toxic.what)
				})
			}
		}
	}
}
