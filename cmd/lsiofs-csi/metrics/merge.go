// Package metrics merges the metrics of several servers, in Prometheus' text format, to one page.
// Each sample gets an additional label, server, and each metric has its HELP and TYPE once. It is
// pure.
package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// family is a metric with the samples of all servers.
type family struct {
	help, kind string
	samples    []string
}

// Merge merges pages by server. Lines that are neither comments nor samples are left out.
func Merge(pages map[string]string) string {
	families := map[string]*family{}
	of := func(name string) *family {
		f := families[name]
		if f == nil {
			f = &family{}
			families[name] = f
		}
		return f
	}
	for _, server := range slices.Sorted(maps.Keys(pages)) {
		typed := "" // the family of the last TYPE: a histogram's samples have longer names
		for line := range strings.Lines(pages[server]) {
			line = strings.TrimRight(line, "\r\n")
			fields := strings.SplitN(line, " ", 4)
			switch {
			case len(fields) == 4 && fields[0] == "#" && fields[1] == "HELP":
				of(fields[2]).help = line
			case len(fields) == 4 && fields[0] == "#" && fields[1] == "TYPE":
				typed = fields[2]
				of(typed).kind = line
			case line == "" || line[0] == '#':
			default:
				name, sample, ok := labelled(line, server)
				if !ok {
					continue
				}
				if typed != "" && belongs(name, typed) {
					name = typed
				}
				of(name).samples = append(of(name).samples, sample)
			}
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		if len(f.samples) == 0 {
			continue
		}
		for _, line := range append([]string{f.help, f.kind}, f.samples...) {
			if line != "" {
				b.WriteString(line + "\n")
			}
		}
	}
	return b.String()
}

// belongs reports whether a sample belongs to a family, which may be a histogram or summary.
func belongs(sample, family string) bool {
	rest, is := strings.CutPrefix(sample, family)
	return is && slices.Contains([]string{"", "_bucket", "_sum", "_count"}, rest)
}

// labelled adds the label server to a sample: name{labels} value.
func labelled(line, server string) (name, sample string, ok bool) {
	end := strings.IndexAny(line, "{ ")
	if end <= 0 {
		return "", "", false
	}
	label := Label("server", server)
	name = line[:end]
	if line[end] == ' ' {
		return name, name + "{" + label + "}" + line[end:], true
	}
	rest := line[end+1:]
	if !strings.HasPrefix(rest, "}") {
		label += ","
	}
	return name, name + "{" + label + rest, true
}

var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// Label returns name="value" in the text format.
func Label(name, value string) string { return fmt.Sprintf(`%s="%s"`, name, escaped.Replace(value)) }
