package web

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// machine is a user name and a password in a .netrc. The name is "" for the default, which comes
// last.
type machine struct{ name, login, password string }

// netrcFile returns the .netrc that NETRC names, or that of the home directory, or "".
func netrcFile() string {
	if file := os.Getenv("NETRC"); file != "" {
		return file
	}
	if home := os.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".netrc")
	}
	return ""
}

// readNetrc returns the machines of a .netrc, or none if there is no such file. problem explains to
// users why a file is not used.
func readNetrc(file string) (machines []machine, problem string) {
	if file == "" {
		return nil, ""
	}
	unused := func(format string, args ...any) ([]machine, string) {
		return nil, fmt.Sprintf("the server wants to know who asks, and %s is not used, since ", file) + fmt.Sprintf(format, args...)
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if os.IsNotExist(err) {
		return nil, ""
	}
	if err != nil {
		return unused("it can't be read: %v", err)
	}
	defer func() { _ = f.Close() }()
	is, err := f.Stat()
	if err != nil || !is.Mode().IsRegular() {
		return nil, ""
	}
	if s, ok := is.Sys().(*syscall.Stat_t); ok && s.Uid != uint32(os.Geteuid()) && s.Uid != 0 {
		return unused("it belongs to somebody else")
	}
	if is.Mode().Perm()&0o077 != 0 {
		return unused("others may read it: chmod 600 %s", file)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxAuthBytes+1))
	if err != nil || len(text) > maxAuthBytes {
		return unused("it can't be read, or is larger than %d bytes", maxAuthBytes)
	}
	if machines, err = parseNetrc(string(text)); err != nil {
		return unused("%v", err)
	}
	return machines, ""
}

// parseNetrc parses the format of ftp(1), curl and others: machine NAME login USER password WORD,
// default, macdef, comments, and quoted words with \ as escape. The first of several machines of
// the same name counts, and the default comes last.
func parseNetrc(text string) (machines []machine, err error) {
	w := words{text: strings.TrimPrefix(text, "\ufeff")}
	var fallback []machine
	var m *machine
	for {
		word, ok := w.next(true)
		if !ok {
			break
		}
		value := func() string {
			if value, ok := w.next(false); ok {
				return value
			}
			err = fmt.Errorf("nothing comes after its last word, %q", word)
			return ""
		}
		switch word {
		case "machine":
			machines = append(machines, machine{name: value()})
			m = &machines[len(machines)-1]
		case "default":
			fallback = []machine{{}}
			m = &fallback[0]
		case "macdef":
			_ = value()
			w.macro()
		case "login", "password", "account":
			v := value()
			switch {
			case m == nil:
				return nil, fmt.Errorf("%s stands before the first machine", word)
			case word == "login":
				m.login = v
			case word == "password":
				m.password = v
			}
		default:
			return nil, errors.New("it has a word that a .netrc has not, and that may be a part of a password: quote passwords with blanks") // the word itself is not printed
		}
		if err != nil {
			return nil, err
		}
	}
	return append(machines, fallback...), nil
}

// words splits a .netrc into words.
type words struct {
	text string
	at   int
}

// next returns the next word. If comments are allowed, # begins one.
func (w *words) next(comments bool) (word string, ok bool) {
	for {
		for w.at < len(w.text) && strings.IndexByte(" \t\r\n", w.text[w.at]) >= 0 {
			w.at++
		}
		if !comments || w.at >= len(w.text) || w.text[w.at] != '#' {
			break
		}
		if end := strings.IndexByte(w.text[w.at:], '\n'); end >= 0 {
			w.at += end
		} else {
			w.at = len(w.text)
		}
	}
	if w.at >= len(w.text) {
		return "", false
	}
	quoted := w.text[w.at] == '"'
	if quoted {
		w.at++
	}
	var b strings.Builder
	for ; w.at < len(w.text); w.at++ {
		switch c := w.text[w.at]; {
		case quoted && c == '"':
			w.at++
			return b.String(), true
		case !quoted && strings.IndexByte(" \t\r\n", c) >= 0:
			return b.String(), true
		case quoted && c == '\\' && w.at+1 < len(w.text):
			w.at++
			b.WriteByte(escaped(w.text[w.at]))
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), !quoted // a quote without an end is not a word
}

// escaped returns the character that \ followed by c means in quotes.
func escaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// macro skips a macro, which ends with an empty line.
func (w *words) macro() {
	rest := w.text[w.at:]
	for {
		end := strings.IndexByte(rest, '\n')
		if end < 0 {
			w.at = len(w.text)
			return
		}
		rest = rest[end+1:]
		if line, _, _ := strings.Cut(rest, "\n"); strings.TrimSuffix(line, "\r") == "" {
			w.at = len(w.text) - len(rest)
			return
		}
	}
}
