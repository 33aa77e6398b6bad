package discover

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// listed is a file of a listing, and the format that its content shows.
type listed struct {
	Path, Shows string
	Empty       bool
}

const chooseProgram = `
def answer(files):
    shown = {f["Path"]: f["Shows"] or None for f in files}
    empty = {f["Path"] for f in files if f["Empty"]}
    formats.first_of = lambda paths: next((p for p in sorted(paths) if p not in empty), paths[0])
    try:
        return choose([f["Path"] for f in files], shown.get)
    except Refused:
        return ["", []]
`

// TestShardsAreChosenAsThePagesSay draws listings, and compares decide with the function choose of
// the page SHARDS.md.
func TestShardsAreChosenAsThePagesSay(t *testing.T) {
	dice := rand.New(rand.NewPCG(5, 6))
	names := []string{"a/x-%d.jsonl", "b/x-%d.tar", "c/part-%d", "d/%d.json.gz", "e/x%d.txt", "f/training.%d.gz", "g/x.tfrecord-0000%d-of-00003", "h/y%d.TAR", "i/z%d.tar.gz"}
	contents := []string{"", "", "tar", "jsonl", "tfrecord"}
	var listings [][]listed
	for range 4000 {
		var files []listed
		for _, n := range dice.Perm(len(names))[:1+dice.IntN(3)] {
			for i := range 1 + dice.IntN(3) {
				f := listed{Path: fmt.Sprintf(names[n], i), Shows: contents[dice.IntN(len(contents))], Empty: dice.IntN(5) == 0}
				switch {
				case names[n] == "b/x-%d.tar": // what is looked at is whether it contains games
					f.Shows = []string{"", "", "lc0"}[dice.IntN(3)]
				case names[n] == "f/training.%d.gz" && dice.IntN(2) == 0:
					f.Shows = "lc0"
				}
				if f.Empty {
					f.Shows = ""
				}
				files = append(files, f)
			}
		}
		listings = append(listings, files)
	}
	for k, answer := range formattest.Specified[[]listed, [2]any](t, chooseProgram, listings) {
		format, shards := chosen(listings[k])
		want := []any{}
		if format != "" {
			want = answer[1].([]any)
		}
		require.Equal(t, answer[0], format, "%+v", listings[k])
		require.ElementsMatch(t, want, shards, "%+v", listings[k])
	}
}

// chosen returns the result of decide, "" for an error.
func chosen(list []listed) (format string, shards []any) {
	of := map[string]listed{}
	var objects []storage.Object
	for _, f := range list {
		of[f.Path] = f
		o := storage.Object{Path: f.Path, SizeBytes: 1}
		if f.Empty {
			o.SizeBytes = 0
		}
		objects = append(objects, o)
	}
	files := asFiles(objects)
	namings := namingsOf(files)
	shown := make([]string, len(files))
	for range 2 { // names of tars that contain games imply nothing
		for _, i := range wanted(files, namings, shown) {
			shown[i] = of[files[i].Object.Path].Shows
		}
	}
	d, formats, alike := decide(files, namings, shown)
	if len(formats) != 1 || len(alike) > 0 {
		return "", nil
	}
	for i := range files {
		if d.taken[i] {
			shards = append(shards, files[i].Object.Path)
		}
	}
	return d.format, shards
}
