package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	second "github.com/lsiofs/lsiofs/integration/reference"
	"github.com/lsiofs/lsiofs/integration/serve"
)

// mutations are random changes of a file. Each may modify b in place.
var mutations = []struct {
	name string
	do   func(r *rand.Rand, b []byte) []byte
}{
	{"cut", func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] }},
	{"flipped bit", func(r *rand.Rand, b []byte) []byte { b[r.IntN(len(b))] ^= 1 << r.IntN(8); return b }},
	{"other byte", func(r *rand.Rand, b []byte) []byte { b[r.IntN(len(b))] = byte(r.Uint32()); return b }},
	{"zeros", func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b))
		clear(b[at:min(len(b), at+1+r.IntN(2000))])
		return b
	}},
	{"lost bytes", func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b))
		return slices.Delete(b, at, min(len(b), at+1+r.IntN(700)))
	}},
	{"lost block", func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b)) / 512 * 512
		return slices.Delete(b, at, min(len(b), at+512))
	}},
	{"doubled bytes", func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b))
		return slices.Insert(b, at, slices.Clone(b[at:min(len(b), at+1+r.IntN(700))])...)
	}},
	{"doubled block", func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b)) / 512 * 512
		return slices.Insert(b, at, slices.Clone(b[at:min(len(b), at+512)])...)
	}},
	{"bytes at the end", func(r *rand.Rand, b []byte) []byte { return append(b, make([]byte, 1+r.IntN(600))...) }},
}

// TestDamageAtRandomLeavesTheSameRecordsAsInTheReference damages shards before and after
// compression. It compares what is left with skip, and whether the dataset is refused with fail. A
// wrong record shows here.
func TestDamageAtRandomLeavesTheSameRecordsAsInTheReference(t *testing.T) {
	serve.Tier(t, serve.CI)
	for _, format := range formats {
		for _, codec := range codecs {
			t.Run(format.name+codec.ext, func(t *testing.T) {
				r := rand.New(rand.NewPCG(*drawSeed, 7))
				for i := range *draws {
					mutation := mutations[r.IntN(len(mutations))]
					inside := codec.ext != "" && r.IntN(2) == 0
					t.Run(fmt.Sprintf("%d %s", i, mutation.name), func(t *testing.T) {
						d := dataset{dir: t.TempDir(), flags: slices.Clone(format.flags), ext: format.ext}
						for n := range 2 {
							s := format.make(r, n+r.IntN(len(tarStyles)))
							if inside && n == 1 {
								s.bytes, s.ends = mutation.do(r, s.bytes), s.ends[:3]
								s.ends = slices.DeleteFunc(s.ends, func(end int) bool { return end > len(s.bytes) })
							}
							b := codec.compress(r, s)
							if !inside && n == 1 {
								b = mutation.do(r, b)
							}
							require.NoError(t, os.WriteFile(filepath.Join(d.dir, fmt.Sprintf("s-%d%s%s", n, format.ext, codec.ext)), b, 0o644))
						}
						t.Logf("inside: %v; again: go test ./integration -run '%s' -draws %d -drawseed %d", inside, t.Name(), *draws, *drawSeed)
						requireSameOutcome(t, d)
					})
				}
			})
		}
	}
}

// requireSameOutcome compares the program and the reference on a dataset that may be damaged.
func requireSameOutcome(t *testing.T, d dataset) {
	t.Helper()
	ref := newReference(t, d)
	for _, policy := range []string{"fail", "skip"} {
		for _, kind := range []string{"data", "ids", "offsets"} {
			args := append([]string{"cat", d.dir, "--on-corrupt", policy, "--shuffle-size", "16", "--lanes", "2", "--chunk-records", "4"}, d.flags...)
			want, err := ref.process.Ask(map[string]any{"on-corrupt": policy, "kind": kind, "shuffle-size": 16, "lanes": 2, "chunk-records": 4})
			if kind != "data" {
				args = append(args, "--"+kind)
			}
			got := tool(t, args...)
			if err != nil {
				require.ErrorIs(t, err, second.ErrRefused)
				if policy == "skip" {
					require.NotZero(t, got.code, "%v", err)
				} else {
					require.Equal(t, exitDataset, got.code, "%v\nlsiofs: %s", err, got.stderr)
				}
				require.NotContains(t, got.stderr, "goroutine")
				break
			}
			if kind == "data" && got.code == exitDataset && strings.Contains(got.stderr, "the data's crc32c does not match") {
				continue // only reading the data shows this; IDs and offsets are unaffected
			}
			require.Zerof(t, got.code, "%s: the reference reads it: %s", policy, got.stderr)
			requireSameBytes(t, want, got.stdout, "%s under %s", kind, policy)
		}
	}
}
