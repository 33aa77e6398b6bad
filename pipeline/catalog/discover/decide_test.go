package discover

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// TestEveryListingHasAVerdictForEachFile tries all listings of up to three namings of three files,
// with all results that looking at the files may have. Each file is a shard, or has a reason; files
// of a naming are decided together; and the format that one file of a naming shows applies to those
// that show nothing.
func TestEveryListingHasAVerdictForEachFile(t *testing.T) {
	names := []string{"a/x-%d.jsonl", "b/x-%d.tar", "c/part-%d", "d/%d.json.gz", "e/x%d.txt", "f/training.%d.gz", "g/x.tfrecord-0000%d-of-00003"}
	shows := [][]string{{"", "", ""}, {"jsonl", "jsonl", "jsonl"}, {"jsonl", "", "jsonl"}, {"", "tar", "tar"}, {"tfrecord", "jsonl", ""}, {"lc0", "", "lc0"}}
	for i := range names {
		for j := i; j < len(names); j++ {
			for _, x := range shows {
				for _, y := range shows {
					var objects []storage.Object
					of := map[string]string{}
					for n := range 3 {
						for pattern, shown := range map[string]string{names[i]: x[n], names[j]: y[n]} {
							path := fmt.Sprintf(pattern, n)
							if of[path] == "" {
								objects = append(objects, storage.Object{Path: path, SizeBytes: 100})
							}
							of[path] = shown
						}
					}
					objects = slices.CompactFunc(objects, func(a, b storage.Object) bool { return a.Path == b.Path })
					requireVerdicts(t, asFiles(objects), of)
				}
			}
		}
	}
}

func requireVerdicts(t *testing.T, files []file, of map[string]string) {
	namings := namingsOf(files)
	shown := make([]string, len(files))
	look := func() {
		for _, i := range wanted(files, namings, shown) {
			if s := of[files[i].Object.Path]; s != "lc0" || (lc0.Format{}).Takes(files[i].Object.Path) {
				shown[i] = s
			}
		}
	}
	look()
	look() // the tars may have turned out to contain games
	d, formats, alike := decide(files, namings, shown)
	taken := map[string]bool{}
	for _, n := range namings {
		for _, i := range n.files {
			path := files[i].Object.Path
			require.NotEmpty(t, d.reasons[i], "%s: %v", path, of)
			require.Equal(t, d.taken[n.files[0]], d.taken[i], "%s is one decision with its naming: %v", path, of)
			if d.taken[i] {
				taken[n.formatOf(files, shown)] = true
			}
		}
		isLost := !d.taken[n.files[0]] && !d.named && slices.ContainsFunc(n.files, func(i int) bool { return shown[i] != "" })
		require.False(t, isLost, "a file of %s shows a format, and none is taken: %v", files[n.files[0]].Object.Path, of)
		shows := n.formatOf(files, shown)
		isAlike := slices.ContainsFunc(alike, func(a naming) bool { return a.files[0] == n.files[0] })
		if d.named && !d.taken[n.files[0]] && len(formats) == 1 && shows == d.format {
			require.True(t, isAlike, "%s shows the format that names say: %v", files[n.files[0]].Object.Path, of)
		}
	}
	require.Len(t, taken, len(formats), "two formats are an error: %v", of)
}
