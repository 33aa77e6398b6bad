package service

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An answer's first byte comes after 20 ± 5 ms, as from a bucket in the same region.
const (
	leastDelay = 15 * time.Millisecond
	moreDelay  = 10 * time.Millisecond
)

// Range is a requested range of an object, which is identified by its number. SizeBytes is -1 if
// the whole object was requested.
type Range struct {
	Object      int   `json:"object"`
	OffsetBytes int64 `json:"offset_bytes"`
	SizeBytes   int64 `json:"size_bytes"`
}

// Address is the location of a server's objects.
type Address struct {
	Host      string `json:"host"`
	Extension string `json:"extension"` // of the objects' names, with the dot
	Objects   int    `json:"objects"`
}

// URL returns the URL of an object.
func (a Address) URL(object int) string {
	return fmt.Sprintf("http://%s/%05d%s", a.Host, object, a.Extension)
}

// Dataset returns the name of the first n objects as one dataset.
func (a Address) Dataset(n int) string {
	return fmt.Sprintf("http://%s/{%05d..%05d}%s", a.Host, 0, n-1, a.Extension)
}

// Served lists the requests since the previous query.
type Served struct {
	Ranges []Range `json:"ranges"` // of GETs, in order
	Heads  int     `json:"heads"`
}

// Serve serves the files of a directory, each under the given number of names, at a free port on
// this machine. It writes its Address to out, as a line of JSON, and then a Served for each line of
// in. It returns at the end of in.
func Serve(ctx context.Context, dir string, copies int, in io.Reader, out io.Writer) error {
	s, err := newServer(dir, copies)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.address.Host = listener.Addr().String()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var connections sync.WaitGroup
	connections.Go(func() { s.accept(listener, &connections) })
	err = s.answer(in, json.NewEncoder(out))
	_ = listener.Close() // nothing can be done about an error
	s.closeAll()
	connections.Wait()
	return errors.Join(err, ctx.Err())
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

type server struct {
	address Address
	files   []string

	mu     sync.Mutex
	served Served
	open   map[net.Conn]struct{}
	closed bool
}

func newServer(dir string, copies int) (*server, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	s := &server{open: map[net.Conn]struct{}{}}
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			s.files = append(s.files, filepath.Join(dir, e.Name()))
		}
	}
	if len(s.files) == 0 {
		return nil, fmt.Errorf("%s has no files to serve", dir)
	}
	_, s.address.Extension, _ = strings.Cut(filepath.Base(s.files[0]), ".")
	s.address.Extension = "." + s.address.Extension
	s.address.Objects = len(s.files) * copies
	return s, nil
}

// answer writes the address, and then what was served for each line of in.
func (s *server) answer(in io.Reader, out *json.Encoder) error {
	if err := out.Encode(s.address); err != nil {
		return err
	}
	questions := json.NewDecoder(in)
	for {
		var question struct{}
		if err := questions.Decode(&question); err != nil {
			return ignore(err, io.EOF)
		}
		s.mu.Lock()
		served := s.served
		s.served = Served{}
		s.mu.Unlock()
		if err := out.Encode(served); err != nil {
			return err
		}
	}
}

// accept serves connections until the listener is closed.
func (s *server) accept(listener net.Listener, connections *sync.WaitGroup) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = conn.Close()
			return
		}
		s.open[conn] = struct{}{}
		s.mu.Unlock()
		connections.Go(func() {
			s.serve(conn)
			s.mu.Lock()
			delete(s.open, conn)
			s.mu.Unlock()
			_ = conn.Close()
		})
	}
}

// closeAll closes all connections, including future ones.
func (s *server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for conn := range s.open {
		_ = conn.Close()
	}
}

// serve answers the requests of a connection until it breaks or the client ends it. It implements
// as much of HTTP/1.1 as clients need to read ranges: net/http's server would make the program
// larger for the sake of a measurement.
func (s *server) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil || s.reply(conn, r) != nil || r.Close {
			return
		}
	}
}

// reply answers one HEAD or GET of an object.
func (s *server) reply(conn net.Conn, r *http.Request) error {
	n, err := strconv.Atoi(strings.TrimSuffix(path.Base(r.URL.Path), s.address.Extension))
	if err != nil || n < 0 || n >= s.address.Objects {
		_, err := io.WriteString(conn, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
		return err
	}
	wanted := rangeOf(n, r.Header.Get("Range"))
	s.note(r.Method, wanted)
	time.Sleep(leastDelay + rand.N(moreDelay))
	f, err := os.Open(s.files[n%len(s.files)])
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	begin, end := wanted.OffsetBytes, size
	if wanted.SizeBytes >= 0 {
		end = begin + wanted.SizeBytes
	}
	head := fmt.Sprintf("ETag: \"%d\"\r\nAccept-Ranges: bytes\r\nContent-Type: application/octet-stream\r\n", n)
	switch {
	case end > size || begin > end:
		_, err := fmt.Fprintf(conn, "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */%d\r\nContent-Length: 0\r\n%s\r\n", size, head)
		return err
	case r.Header.Get("Range") == "":
		head = "HTTP/1.1 200 OK\r\n" + head
	default:
		head = fmt.Sprintf("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %d-%d/%d\r\n%s", begin, end-1, size, head)
	}
	if _, err := fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n", head, end-begin); err != nil || r.Method == http.MethodHead {
		return err
	}
	if _, err := f.Seek(begin, io.SeekStart); err != nil {
		return err
	}
	_, err = io.CopyN(conn, f, end-begin) // sendfile(2)
	return err
}

func (s *server) note(method string, asked Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if method == http.MethodHead {
		s.served.Heads++
		return
	}
	s.served.Ranges = append(s.served.Ranges, asked)
}

// rangeOf parses a header with one range, as lsiofs and Loop send it.
func rangeOf(object int, header string) Range {
	all := Range{Object: object, SizeBytes: -1}
	span, ok := strings.CutPrefix(header, "bytes=")
	first, last, cut := strings.Cut(span, "-")
	from, err := strconv.ParseInt(first, 10, 64)
	if !ok || !cut || err != nil {
		return all
	}
	all.OffsetBytes = from
	if to, err := strconv.ParseInt(last, 10, 64); err == nil {
		all.SizeBytes = to - from + 1
	}
	return all
}
