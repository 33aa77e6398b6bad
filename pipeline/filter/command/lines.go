package command

import (
	"bufio"
	"fmt"
	"strings"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/printable"
)

const (
	// maxLineBytes is the maximum length of a line; the rest is dropped.
	maxLineBytes = 4 << 10
	// maxLines is the maximum number of lines per shard: more is chatter.
	maxLines = 200
)

// lines passes on a program's output, line by line, with the shard that it is about.
type lines struct {
	said  func(about, line string)
	ended chan struct{} // closed at the end of the output

	mu    sync.Mutex
	about string // the current shard
	count int    // number of lines about it
	last  string
}

func newLines(from *Pipe, said func(about, line string), about string) *lines {
	l := &lines{said: said, about: about, ended: make(chan struct{})}
	go l.read(bufio.NewReaderSize(from, maxLineBytes))
	return l
}

// read reads until the pipe is closed or its deadline has passed.
func (l *lines) read(r *bufio.Reader) {
	defer close(l.ended)
	for rest := false; ; {
		text, more, err := r.ReadLine()
		if err != nil {
			return
		}
		if !rest {
			l.tell(strings.TrimRight(string(text), "\r"))
		}
		rest = more
	}
}

func (l *lines) tell(line string) {
	if strings.TrimSpace(line) == "" {
		return
	}
	l.mu.Lock()
	l.last = line
	l.count++
	about, n := l.about, l.count
	l.mu.Unlock()
	switch {
	case n < maxLines:
		l.said(about, line)
	case n == maxLines:
		l.said(about, "(its further output on this shard is left out)")
	}
}

// of sets the shard that the next lines are about.
func (l *lines) of(about string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.about != about {
		l.about, l.count = about, 0
	}
}

// lastWords returns the end of an error message, with the last line of output.
func (l *lines) lastWords() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == "" {
		return ""
	}
	return fmt.Sprintf("; its last output was: %.200s", printable.Line(l.last))
}
