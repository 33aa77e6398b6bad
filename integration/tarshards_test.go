package integration

import (
	"archive/tar"
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// tarShard makes one shard of WebDataset samples. Shards restart their keys, as real ones do, and
// have so few of them that a shuffle often puts equal keys next to each other. The shard's number
// selects one of the ways in which a header can carry a path, which are the cases of the equal-key
// rule.
func tarShard(r *rand.Rand, number int) shard {
	style := tarStyles[number%len(tarStyles)]
	w := &tarWriter{style: style, r: r}
	w.tar = tar.NewWriter(&w.buf)
	if number%4 == 1 {
		w.must(w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "of the whole archive"}}))
	}
	w.directory("data/")
	for i := range 25 + r.IntN(15) {
		key := fmt.Sprintf("%ss%d", style.directory, i%3)
		w.file(key+".txt", fmt.Appendf(nil, "shard %d sample %d %s", number, i, strings.Repeat("t", r.IntN(700))))
		switch i % 6 {
		case 1:
			w.link(key + ".lnk")
		case 2:
			w.file("LICENSE", []byte("in the middle of a sample"))
		case 3:
			w.file("__meta__/index.json", []byte("{}"))
		case 4:
			w.file(style.directory+".hidden", nil)
		}
		if i%4 != 0 {
			w.file(key+".seg.json", fmt.Appendf(nil, `{"n": %d}`, r.IntN(1000)))
		}
		if i%9 == 0 {
			w.file(key+".empty", nil)
		}
		w.recordEnds()
	}
	w.must(w.tar.Close())
	bytes := w.buf.Bytes()
	switch number % 3 {
	case 1: // ends after the last member's padding, without zero blocks
		bytes = bytes[:len(bytes)-1024]
	case 2:
		bytes = append(bytes, make([]byte, 10240-len(bytes)%10240)...)
	}
	return shard{bytes: bytes, ends: w.ends}
}

// tarStyle is one way to carry a path.
type tarStyle struct {
	format    tar.Format
	directory string
	pax       map[string]string
	// A fraction of a second in mtime causes PAX headers without a path.
	nanoseconds bool
}

var tarStyles = []tarStyle{
	{format: tar.FormatUSTAR, directory: "data/"},
	{format: tar.FormatPAX, directory: "data/", nanoseconds: true},                                               // PAX header, path in the ustar header
	{format: tar.FormatGNU, directory: "data/"},                                                                  // GNU's magic
	{format: tar.FormatUSTAR, directory: strings.Repeat("p", 148) + "/"},                                         // a prefix for which dup-… is sometimes too long
	{format: tar.FormatGNU, directory: strings.Repeat("n", 160) + "/"},                                           // L headers
	{format: tar.FormatPAX, directory: "donn\u00e9es/"},                                                          // PAX path
	{format: tar.FormatPAX, directory: strings.Repeat("q/", 120)},                                                // PAX path, long
	{format: tar.FormatUSTAR, directory: strings.Repeat("d", 60) + "/x.y/z.d/"},                                  // dots in directories
	{format: tar.FormatPAX, directory: "data/", pax: map[string]string{"LSIOFS.note": strings.Repeat("v", 470)}}, // a header at the edge of a block
}

type tarWriter struct {
	buf   bytes.Buffer
	tar   *tar.Writer
	style tarStyle
	r     *rand.Rand
	ends  []int
}

func (w *tarWriter) header(name string, kind byte, size int) *tar.Header {
	h := &tar.Header{
		Format: w.style.format, Name: name, Typeflag: kind, Size: int64(size), Mode: 0o644,
		Uname: "user", Gname: "group", ModTime: time.Unix(1600000000, 0), PAXRecords: w.style.pax,
	}
	if w.style.nanoseconds {
		h.ModTime = time.Unix(1600000000, 123456000)
	}
	return h
}

func (w *tarWriter) file(name string, data []byte) {
	w.must(w.tar.WriteHeader(w.header(name, tar.TypeReg, len(data))))
	_, err := w.tar.Write(data)
	w.must(err)
}

func (w *tarWriter) directory(name string) {
	w.must(w.tar.WriteHeader(w.header(name, tar.TypeDir, 0)))
}

func (w *tarWriter) link(name string) {
	h := w.header(name, tar.TypeSymlink, 0)
	h.Linkname = "s0.txt"
	w.must(w.tar.WriteHeader(h))
}

func (w *tarWriter) recordEnds() {
	w.must(w.tar.Flush())
	w.ends = append(w.ends, w.buf.Len())
}

func (w *tarWriter) must(err error) {
	if err != nil {
		panic(err)
	}
}
