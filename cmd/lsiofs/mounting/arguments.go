package mounting

import (
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// argsFlag is the flag, directly after the verb, with the descriptor that delivers a command's real
// arguments: those after the verb, each terminated by a zero byte. Arguments after the flag are
// then only for display. All users of a machine can see the arguments of its processes, but not
// what passes through a pipe.
const argsFlag = "--args-fd="

// maxArgsBytes bounds the arguments read from a descriptor. A kernel takes 6 MiB at most.
const maxArgsBytes = 8 << 20

// WholeArgs returns args or, if they name a descriptor, the arguments read from it.
func WholeArgs(args []string) ([]string, error) {
	if len(args) < 2 || strings.HasPrefix(args[0], "-") {
		return args, nil
	}
	number, found := strings.CutPrefix(args[1], argsFlag)
	if !found {
		return args, nil
	}
	fd, err := strconv.Atoi(number)
	if err != nil || fd < 0 {
		return args, exit.Usagef("--args-fd (%s) must be the number of an open file", number)
	}
	f := os.NewFile(uintptr(fd), "args-fd")
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxArgsBytes+1))
	text := string(b)
	switch {
	case err != nil:
		return args, exit.Usagef("--args-fd (%d) can't be read: %w", fd, err)
	case len(b) > maxArgsBytes:
		return args, exit.Usagef("--args-fd (%d) has more than %d bytes: it must hold only the arguments", fd, maxArgsBytes)
	case text != "" && !strings.HasSuffix(text, "\x00"):
		return args, exit.Usagef("--args-fd (%d) has an argument that does not end with a zero byte: write them as printf '%%s\\0' does", fd)
	}
	whole := strings.Split(text, "\x00")
	return append(args[:1:1], whole[:len(whole)-1]...), nil
}

// shownArgs returns args in a form that everyone may see, and reports whether that differs: user
// names, passwords and queries are removed from URLs.
func shownArgs(args []string) (shown []string, secret bool) {
	for _, a := range args {
		// Only URLs contain secrets. Elsewhere ? is part of a pattern.
		if strings.Contains(a, "://") {
			if clean := remote.CleanText(a); clean != a {
				a, secret = clean, true
			}
		}
		shown = append(shown, a)
	}
	return shown, secret
}

// writeArgs writes the arguments for --args-fd to w and closes it. It ignores errors: they mean
// that the process has ended, and it reports the reason itself.
func writeArgs(w *os.File, args []string) {
	for _, a := range args {
		if _, err := io.WriteString(w, a+"\x00"); err != nil {
			break
		}
	}
	_ = w.Close()
}
