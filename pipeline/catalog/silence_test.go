package catalog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// TestOneOfManyIsNeverLostInSilence alters one of four shards in ways that occur in practice, for
// names and formats of all sorts. Then either all records are served, or an error or a message
// names the file. The nightly run tries all combinations, other runs a sample that includes each
// kind of shard, each alteration and each way. Package discover tests all listings without files.
func TestOneOfManyIsNeverLostInSilence(t *testing.T) {
	every := 31 // coprime to the numbers of ways and of alterations
	if serve.Runs(serve.Night) {
		every = 1
	}
	n := 0
	for _, k := range shardKinds() {
		for _, a := range alterations(k) {
			for _, way := range []string{"directory", "pattern", "growing"} {
				for _, skip := range []bool{false, true} {
					if n++; n%every != 0 {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%s/skip=%v", strings.ReplaceAll(k.names, "%d", "N"), a.name, way, skip), func(t *testing.T) {
						requireSaid(t, k, a, way, skip)
					})
				}
			}
		}
	}
}

// shardKind is four shards of one naming pattern.
type shardKind struct {
	names   string // with the shard's number
	shard   func(n int) []byte
	records int // of each
	text    bool
	codec   func(...[]byte) []byte // nil: none
}

const (
	siblings   = 4
	alteredOne = 2
)

func (k *shardKind) name(n int) string { return fmt.Sprintf(k.names, n) }

func (k *shardKind) data(n int) []byte {
	if k.codec != nil {
		return k.codec(k.shard(n))
	}
	return k.shard(n)
}

func shardKinds() []shardKind {
	lines := func(n int) []byte { return linesOf(20, fmt.Sprint(n)) }
	frames := func(n int) []byte { return framesOf(20 + n)[:len(framesOf(20))] }
	tars := func(n int) []byte { return tarOf(10, fmt.Sprint(n)) }
	zstd := func(p ...[]byte) []byte { return zst(bytes.Join(p, nil)) }
	return []shardKind{
		{names: "p-%d.jsonl", shard: lines, records: 20, text: true},
		{names: "p-%d.jsonl.gz", shard: lines, records: 20, text: true, codec: gz},
		{names: "part-0000%d-of-00004.json.gz", shard: lines, records: 20, text: true, codec: gz},
		{names: "part-0000%d-c000.json", shard: lines, records: 20, text: true},
		{names: "d/%d.json.zst", shard: lines, records: 20, text: true, codec: zstd},
		{names: "x.tfrecord-0000%d-of-00004", shard: frames, records: 20},
		{names: "part-r-0000%d", shard: frames, records: 20},
		{names: "s-%d.tar", shard: tars, records: 10},
		{names: "s-%d.tgz", shard: tars, records: 10, codec: gz},
		{names: "s%d", shard: tars, records: 10},
		{names: "training.%d.gz", shard: numberedGame, records: 3, codec: gz},
	}
}

// numberedGame is a game of Leela Chess Zero: three frames of version 6.
func numberedGame(n int) []byte {
	var b []byte
	for i := range 3 {
		frame := bytes.Repeat([]byte{byte(16*n + i)}, 8356)
		binary.LittleEndian.PutUint32(frame, 6)
		b = append(b, frame...)
	}
	return b
}

// alteration is what happens to one shard. files are the files that replace it.
type alteration struct {
	name  string
	files map[string][]byte
	link  string // a further name that is a link to the shard, "" for none
	// lines is the number of lines of a truncated text, which is indistinguishable from a shorter
	// text.
	lines int
}

func alterations(k shardKind) (list []alteration) {
	name, whole, plain := k.name(alteredOne), k.data(alteredOne), k.shard(alteredOne)
	put := func(what string, data []byte) {
		list = append(list, alteration{name: what, files: map[string][]byte{name: data}})
	}
	put("nothing", whole)
	for _, n := range []int{0, 1, 2, 3, 11, len(whole)/2 + 1, len(whole) - 1} {
		a := alteration{name: fmt.Sprintf("cut at %d", n), files: map[string][]byte{name: whole[:n:n]}}
		if k.text && k.codec == nil {
			a.lines = bytes.Count(whole[:n], []byte("\n"))
			if n > 0 && whole[n-1] != '\n' {
				a.lines++
			}
		}
		list = append(list, a)
	}
	put("zeros", make([]byte, len(whole)))
	half := len(whole)/2 + 1 // at a member's end zeros would be the end of a tar
	put("zeros behind the first half", append(bytes.Clone(whole[:half]), make([]byte, len(whole)-half)...))
	if k.text && k.codec == nil {
		list[len(list)-1].lines = bytes.Count(whole[:half], []byte("\n")) + 1
	}
	put("an HTML page", []byte("<!DOCTYPE html>\n<html>503</html>\n"))
	put("a pointer of Git LFS", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"))
	put("some prose", []byte("Not found.\n"))
	put("not compressed", plain)
	put("gzip inside", gz(plain))
	put("zstd inside", zst(plain))
	put("gzip twice", gz(gz(plain)))
	put("xz inside", []byte("\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46"))
	put("another format", map[bool][]byte{true: tarOf(2, "x"), false: linesOf(3, "x")}[k.text])
	if k.text {
		compressed := func(p []byte) []byte {
			if k.codec != nil {
				return k.codec(p)
			}
			return p
		}
		put("a blank line first", compressed(append([]byte("\n"), plain...)))
		put("NaN in the first line", compressed(append([]byte("{\"a\": NaN}\n"), plain[bytes.IndexByte(plain, '\n')+1:]...)))
		put("an array in the first line", compressed(append([]byte("[1, 2]\n"), plain[bytes.IndexByte(plain, '\n')+1:]...)))
		put("a byte order mark", compressed(append([]byte("\xef\xbb\xbf"), plain...)))
		wide := []byte{0xff, 0xfe}
		for _, u := range utf16.Encode([]rune(string(plain))) {
			wide = binary.LittleEndian.AppendUint16(wide, u)
		}
		put("UTF-16", compressed(wide))
	}
	for _, ending := range []string{".bak", "~", ".part", ".1", ".tmp", ".crdownload", " (1)", ".xz", ".filepart"} {
		list = append(list, alteration{name: "renamed to " + ending, files: map[string][]byte{name + ending: whole}})
	}
	list = append(list,
		alteration{name: "renamed to capitals", files: map[string][]byte{filepath.Join(filepath.Dir(name), strings.ToUpper(filepath.Base(name))): whole}},
		alteration{name: "in a directory of its own", files: map[string][]byte{"more/" + name: whole}},
		alteration{name: "in _temporary", files: map[string][]byte{"_temporary/" + name: whole}},
		alteration{name: "hidden", files: map[string][]byte{filepath.Join(filepath.Dir(name), "."+filepath.Base(name)): whole}},
		alteration{name: "doubled by a decompressor", files: map[string][]byte{name: whole, name + ".zst": zst(whole)}},
		alteration{name: "linked", files: map[string][]byte{name: whole}, link: filepath.Join(filepath.Dir(name), "latest"+filepath.Ext(name))},
	)
	return list
}

// requireSaid opens four shards, one of which was altered, and requires that any loss is reported.
func requireSaid(t *testing.T, k shardKind, a alteration, way string, skip bool) {
	w := newWorld(t)
	for n := range siblings {
		if n != alteredOne {
			w.write(k.name(n), k.data(n))
		}
	}
	var names []string
	for path, data := range a.files {
		w.write(path, data)
		names = append(names, path)
	}
	if a.name == "another format" { // all files of the naming pattern may be taken for it
		for n := range siblings {
			names = append(names, k.name(n))
		}
	}
	slices.Sort(names)
	if a.link != "" {
		require.NoError(t, os.Symlink(filepath.Base(k.name(alteredOne)), filepath.Join(w.data, a.link)))
		names = append(names, a.link)
	}
	var change []func(*Config)
	if skip {
		change = append(change, skipping)
	}
	var records int
	var said string
	switch way {
	case "growing":
		g := newLiveWorld(w)
		s := g.mustOpenLiveIndex(change...)
		g.look(s)
		g.look(s)
		records = int(s.Counts().Records)
		for _, x := range s.Waiting() {
			said += x.Path + ": " + x.Reason + "\n"
		}
		said += strings.Join(s.FirstPassed(), "\n")
		if records > 0 {
			said += printed(g.mustSeal(s, s.Shards()))
		}
	default:
		if way == "pattern" {
			change = append(change, dataset(filepath.Join(w.data, "**")))
		}
		c, err := w.open(change...)
		if err != nil {
			said = err.Error()
			break
		}
		defer c.Close()
		records, said = int(c.Records()), printed(c)
	}
	want := siblings * k.records
	if a.name != "nothing" && a.lines > 0 {
		want = (siblings-1)*k.records + a.lines
	}
	if records == want && a.link == "" {
		return
	}
	require.LessOrEqual(t, records, want, "records came twice")
	named := slices.ContainsFunc(names, func(n string) bool {
		return strings.Contains(said, n) || strings.Contains(said, strings.SplitN(n, "/", 2)[0]+"/")
	})
	require.True(t, named, "%d of %d records, and none of %q is named in %q", records, want, names, said)
	require.NotEqual(t, "nothing", a.name)
}

// printed returns what commands print of a catalog.
func printed(c *Catalog) string {
	s := c.Selection()
	text := s.TakenText() + "\n" + s.LeftOutText() + "\n" + strings.Join(s.Notes, "\n")
	for _, d := range c.Damaged() {
		text += "\n" + d.Path
	}
	for i := range c.Shards() {
		if x := c.Shard(i); x.Records == 0 {
			text += "\n" + x.Object.Path
		}
	}
	return text
}
