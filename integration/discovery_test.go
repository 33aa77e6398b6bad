package integration

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

func TestFormatsAreDetectedByContentIfNamesDoNotTell(t *testing.T) {
	serve.Tier(t, serve.CI)
	shardOf := func(name string) []byte {
		return formatNamed(name).make(rand.New(rand.NewPCG(9, 9)), 2).bytes
	}
	for _, c := range []struct {
		name   string
		files  map[string][]byte
		flags  []string
		stream string
	}{
		{"TFRecords as Spark names them", map[string][]byte{"part-00000": shardOf("tfrecord"), "part-00001": shardOf("tfrecord")}, nil, "worker-0.tfrecord"},
		{"a tar without an ending", map[string][]byte{"archive": shardOf("tar")}, nil, "worker-0.tar"},
		{"lines of JSON in .json.gz", map[string][]byte{"a.json.gz": gzipMember(shardOf("jsonl"))}, nil, "worker-0.json"},
		{"a tar in .tgz", map[string][]byte{"a.tgz": gzipMember(shardOf("tar"))}, nil, "worker-0.tar"},
		{"ndjson", map[string][]byte{"a.ndjson.zst": zstdFrame(shardOf("jsonl"), true)}, nil, "worker-0.ndjson"},
		{"a list beside the shards", map[string][]byte{"a.jsonl": shardOf("jsonl"), "README.txt": []byte("about\n"), "LICENSE": []byte("MIT\n")}, nil, "worker-0.jsonl"},
		{"text, when there is nothing else", map[string][]byte{"a.txt": shardOf("lines"), "LICENSE": []byte("MIT\n")}, nil, "worker-0.txt"},
		{"lines of anything, asked for", map[string][]byte{"a.csv": shardOf("lines"), "b.csv": shardOf("lines")}, []string{"--format", "lines"}, "worker-0.csv"},
		{"lines without an ending", map[string][]byte{"a": shardOf("lines")}, []string{"--format", "lines"}, "worker-0.txt"},
		{"fixed without an ending", map[string][]byte{"a": shardOf("fixed")}, []string{"--format", "fixed", "--record-bytes", "96"}, "worker-0.bin"},
		{"fixed with an ending, compressed", map[string][]byte{"a.u16.gz": gzipMember(shardOf("fixed"))}, []string{"--format", "fixed", "--record-bytes", "96"}, "worker-0.u16"},
		{"tar asked for takes its own only", map[string][]byte{"a.tar": shardOf("tar"), "b.jsonl": shardOf("jsonl")}, []string{"--format", "tar"}, "worker-0.tar"},
		{"tar asked for takes all where none is called so", map[string][]byte{"a.data": shardOf("tar"), "b.data": shardOf("tar")}, []string{"--format", "tar"}, "worker-0.tar"},
		{"hidden files and directories", map[string][]byte{"a.jsonl": shardOf("jsonl"), ".b.jsonl": []byte("{"), ".d/c.jsonl": []byte("{")}, nil, "worker-0.jsonl"},
		{"names in bytewise order", map[string][]byte{"a-b.jsonl": []byte("{\"n\":1}\n"), "a/b.jsonl": []byte("{\"n\":2}\n"), "a.jsonl": []byte("{\"n\":3}\n"), "é.jsonl": []byte("{\"n\":4}\n"), "Z.jsonl": []byte("{\"n\":5}\n")}, nil, "worker-0.jsonl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := dataset{dir: t.TempDir(), flags: c.flags}
			for name, content := range c.files {
				path := filepath.Join(d.dir, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, content, 0o644))
			}
			ref := newReference(t, d)
			s := usual()
			for _, shuffle := range []string{"none", "reservoir"} {
				s.Shuffle, s.Workers = shuffle, 1
				m := mountDataset(t, d, s)
				requireFile(t, ref.data(s, 0), m.path("%s", c.stream))
				require.Equal(t, ref.fingerprint(), m.checkpoint().Dataset)
			}
		})
	}
}
