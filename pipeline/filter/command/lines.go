package command

import (
	"bufio"
	"fmt"
	"strings"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/printable"
)

const (
	// maxLineBytes is what is told of a line.
	maxLineBytes = 4 << 10
	// maxLines is how many lines are told of one shard: more are a program's chatter.
	maxLines = 200
)

// lines tells what a program says, line by line, and of which shard.
type lines struct {
	said  func(about, line string)
	ended chan struct{} // closed at the end of what it says

	mu    sync.Mutex
	about string // the shard that is being filtered
	count int    // of lines, of it
	last  string
}

func newLines(from *Pipe, said func(about, line string), about string) *lines {
	l := &lines{said: said, about: about, ended: make(chan struct{})}
	go l.read(bufio.NewReaderSize(from, maxLineBytes))
	return l
}

// read reads to the end. An error is one: the pipe is closed, or its time is over.
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

// of says which shard the next lines are of.
func (l *lines) of(about string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.about != about {
		l.about, l.count = about, 0
	}
}

// lastWords are what an error says of the last line.
func (l *lines) lastWords() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == "" {
		return ""
	}
	return fmt.Sprintf("; its last output was: %.200s", printable.Line(l.last))
}
