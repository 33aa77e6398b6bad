package parquet

import (
	"bytes"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/lsiofs/lsiofs/pipeline/rows"
)

// cpu reports MB/s of CPU time: what a core does, on a machine that has other work too.
func cpu(b *testing.B) func(bytes int64) {
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	return func(bytes int64) {
		syscall.Getrusage(syscall.RUSAGE_SELF, &after)
		nanos := after.Utime.Nano() - before.Utime.Nano() + after.Stime.Nano() - before.Stime.Nano()
		b.ReportMetric(float64(bytes)/float64(nanos)*1e3, "MB/cpu-s")
	}
}

// textFiles are files of rows of 2.6 KB of text, with pages of 1 MB.
var textFiles = sync.OnceValue(func() map[string][]byte {
	draw := rand.New(rand.NewPCG(1, 1))
	words := make([]string, 5000)
	for i := range words {
		words[i] = strings.Repeat("x", 1+draw.IntN(3)) + strconv.FormatUint(draw.Uint64N(1e6), 36)
	}
	root := &field{fields: []*field{{name: "text", phys: physBytes}, {name: "id", phys: physBytes}, {name: "url", phys: physBytes, optional: true}, {name: "score", phys: physDouble}, {name: "tokens", phys: physInt64}}}
	all := make([]any, 50000)
	for i := range all {
		var text strings.Builder
		for n := 1600 + draw.IntN(2000); text.Len() < n; {
			text.WriteString(words[int(float64(len(words))*draw.Float64()*draw.Float64())])
			text.WriteString([]string{" ", " ", " ", ", ", ".\n", "\""}[draw.IntN(6)])
		}
		all[i] = []any{text.String(), strconv.Itoa(i) + "-" + strconv.FormatUint(draw.Uint64(), 16), "https://example.com/" + strconv.FormatUint(draw.Uint64(), 16), draw.Float64(), draw.Int64N(5000)}
	}
	files := map[string][]byte{}
	for name, c := range map[string]codec{"snappy": codecSnappy, "zstd": codecZstd} {
		w := &fileWriter{draw: draw, codec: c, pageBytes: 1 << 20}
		var groups [][]any
		for at := 0; at < 20000; at += 1000 {
			groups = append(groups, all[at:at+1000])
		}
		files["text1k-"+name] = w.write(root, groups)
		files["text50k-"+name] = w.write(root, [][]any{all})
	}
	return files
})

// benchFiles are files of text, and those of the directory LSIOFS_PARQUET_BENCH.
func benchFiles(b *testing.B) map[string][]byte {
	files := maps.Clone(textFiles())
	dir := os.Getenv("LSIOFS_PARQUET_BENCH")
	if dir == "" {
		return files
	}
	paths, _ := filepath.Glob(filepath.Join(dir, "*.parquet"))
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		files[strings.TrimSuffix(filepath.Base(path), ".parquet")] = data
	}
	return files
}

func presenterOf(b *testing.B, s *shard) rows.Presenter {
	as, err := rows.Present("", false, s.columns)
	if err != nil {
		b.Fatal(err)
	}
	if as == rows.AsTar {
		p, err := rows.NewTar(s.columns, "data/train.parquet", 1<<30)
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	return rows.NewJSONL(s.columns, 1<<30)
}

// BenchmarkGroups decodes and presents row groups in turn, as an index pass does.
func BenchmarkGroups(b *testing.B) {
	for name, data := range benchFiles(b) {
		for _, mode := range []string{"decode", "present"} {
			b.Run(name+"/"+mode, func(b *testing.B) {
				s, err := openShard(data, "", Options{})
				if err != nil {
					b.Fatal(err)
				}
				p := presenterOf(b, s)
				var out []byte
				var size, groups int64
				b.ReportAllocs()
				done := cpu(b)
				for b.Loop() {
					g := int(groups) % s.file.Groups()
					if err := s.cursor.Open(g, Point{}); err != nil {
						b.Fatal(err)
					}
					for {
						batch, err := s.cursor.Next()
						if err == io.EOF {
							break
						}
						if err != nil {
							b.Fatal(err)
						}
						if mode == "decode" {
							continue
						}
						for r := range batch.Rows {
							if out, err = p.Append(out[:0], batch, r, 0); err != nil {
								b.Fatal(err)
							}
							size += int64(len(out))
						}
					}
					if mode == "decode" {
						first, n := s.file.GroupRows(g)
						_ = first
						size += n * int64(len(data)) / s.file.Rows()
					}
					groups++
				}
				b.SetBytes(size / groups)
				done(size)
				b.ReportMetric(float64(s.cursor.MemoryBytes())/(1<<20), "MiB")
			})
		}
	}
}

// mark is a place at which decoding can start, and the presented bytes before it.
type mark struct {
	group int
	point Point
	bytes int64
}

// marksOf makes an index pass: a mark at each row group, and after each MiB where the widest column
// begins a page.
func marksOf(b *testing.B, s *shard, p rows.Presenter) (marks []mark, total int64) {
	var out []byte
	for g := range s.file.Groups() {
		if err := s.cursor.Open(g, Point{}); err != nil {
			b.Fatal(err)
		}
		marks = append(marks, mark{g, s.cursor.Point(), total})
		for {
			if total-marks[len(marks)-1].bytes >= 1<<20 {
				point := s.cursor.Point()
				widest := 0
				for i, l := range s.cursor.leaves {
					if l.c.to-l.c.from > s.cursor.leaves[widest].c.to-s.cursor.leaves[widest].c.from {
						widest = i
					}
				}
				if point.Leaves[widest].Pass == 0 {
					marks = append(marks, mark{g, point, total})
				}
			}
			batch, err := s.cursor.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			for r := range batch.Rows {
				if out, err = p.Append(out[:0], batch, r, 0); err != nil {
					b.Fatal(err)
				}
				total += int64(len(out))
			}
		}
	}
	return marks, total
}

// BenchmarkChunks presents chunks of some size that begin at random rows: all rows from the mark
// before it are decoded, and those of the chunk presented.
func BenchmarkChunks(b *testing.B) {
	for name, data := range benchFiles(b) {
		if !strings.HasPrefix(name, "text") {
			continue
		}
		for sizeName, size := range map[string]int64{"256KiB": 256 << 10, "1MiB": 1 << 20, "4MiB": 4 << 20} {
			b.Run(name+"/"+sizeName, func(b *testing.B) {
				s, err := openShard(data, "", Options{})
				if err != nil {
					b.Fatal(err)
				}
				p := presenterOf(b, s)
				marks, total := marksOf(b, s, p)
				perRow := total / s.file.Rows()
				draw := rand.New(rand.NewPCG(1, 1))
				var out []byte
				b.SetBytes(size)
				done, n := cpu(b), int64(0)
				defer func() { done(n * size) }()
				for b.Loop() {
					out = out[:0]
					n++
					row := draw.Int64N(s.file.Rows() - size/perRow - 1)
					g := 0
					for first, n := s.file.GroupRows(g); row >= first+n; first, n = s.file.GroupRows(g) {
						g++
					}
					first, n := s.file.GroupRows(g)
					row -= first
					for int64(len(out)) < size {
						var from mark
						for _, m := range marks {
							if m.group == g && m.point.Row <= row {
								from = m
							}
						}
						if err := s.cursor.Open(g, from.point); err != nil {
							b.Fatal(err)
						}
						at := from.point.Row
						for int64(len(out)) < size && at < n {
							batch, err := s.cursor.Next()
							if err != nil {
								b.Fatal(err)
							}
							for r := int(max(0, row-at)); r < batch.Rows && int64(len(out)) < size; r++ {
								if out, err = p.Append(out, batch, r, 0); err != nil {
									b.Fatal(err)
								}
							}
							at += int64(batch.Rows)
						}
						if g++; g == s.file.Groups() {
							break
						}
						row = 0
						_, n = s.file.GroupRows(g)
					}
				}
			})
		}
	}
}

// BenchmarkOpen parses and checks a footer.
func BenchmarkOpen(b *testing.B) {
	for name, data := range benchFiles(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Open(bytes.NewReader(data), int64(len(data))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEncodings decodes 64 Ki values of an encoding.
func BenchmarkEncodings(b *testing.B) {
	draw := rand.New(rand.NewPCG(1, 2))
	w := &fileWriter{draw: draw}
	const n = 1 << 16
	for _, width := range []int{1, 7, 12, 17} {
		idx := make([]uint32, n)
		wide := make([]uint64, n)
		for i := range idx {
			wide[i] = draw.Uint64N(1 << width)
		}
		packed := pack(nil, wide, width)
		head := append([]byte{}, uvarint(uint64(n/8)<<1|1)...)
		src := append(head, packed...)
		dst := make([]int32, n)
		b.Run("indexes/"+strconv.Itoa(width), func(b *testing.B) {
			b.SetBytes(4 * n)
			done := cpu(b)
			defer func() { done(int64(b.N) * 4 * n) }()
			for b.Loop() {
				h := hybrid{b: src, width: width}
				if err := h.indexes(dst, 1<<width); err != nil {
					b.Fatal(err)
				}
			}
		})
		if width == 1 {
			levels := make([]uint8, n)
			b.Run("levels", func(b *testing.B) {
				b.SetBytes(n)
				done := cpu(b)
				defer func() { done(int64(b.N) * n) }()
				for b.Loop() {
					h := hybrid{b: src, width: width}
					if err := h.levels(levels, 1); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		ints := make([]int64, n)
		for i := range ints {
			ints[i] = int64(wide[i])
		}
		coded := w.deltas(nil, ints, false)
		out := make([]byte, 0, 8*n)
		b.Run("deltas/"+strconv.Itoa(width), func(b *testing.B) {
			b.SetBytes(8 * n)
			done := cpu(b)
			defer func() { done(int64(b.N) * 8 * n) }()
			for b.Loop() {
				if _, _, err := deltas(out[:0], coded, n, 8); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func uvarint(v uint64) []byte {
	var out []byte
	for ; v >= 128; v >>= 7 {
		out = append(out, byte(v)|128)
	}
	return append(out, byte(v))
}
