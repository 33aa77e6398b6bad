package top

import (
	"sort"
	"strings"

	"github.com/lsiofs/lsiofs/fs"
)

// scraped holds the metrics of one mount in Prometheus' text format.
type scraped struct {
	point string
	text  string // "" if the mount did not return them
}

// merged joins the metrics of several mounts: each value gets the label mount, and all values of a
// metric are together, as the format requires (prometheus.io/docs/instrumenting/exposition_formats,
// version 0.0.4). lsiofs_up is 1 for a mount that returned its metrics, and 0 for one that did not.
func merged(mounts []scraped) []byte {
	type family struct{ head, values strings.Builder }
	families := map[string]*family{}
	var names []string
	of := func(name string) *family {
		f := families[name]
		if f == nil {
			f = new(family)
			families[name] = f
			names = append(names, name)
		}
		return f
	}
	const up = "lsiofs_up"
	of(up).head.WriteString("# HELP lsiofs_up Whether the mount answered, 1 or 0.\n# TYPE lsiofs_up gauge\n")
	for _, m := range mounts {
		label := fs.MetricLabel("mount", m.point)
		value := " 0\n"
		if m.text != "" {
			value = " 1\n"
		}
		of(up).values.WriteString(up + "{" + label + "}" + value)
		var current *family
		var inHead, known bool
		for line := range strings.Lines(m.text) {
			line = strings.TrimSuffix(line, "\n")
			if rest, ok := strings.CutPrefix(line, "# "); ok { // HELP and TYPE of one metric, in either order
				words := strings.SplitN(rest, " ", 3)
				if len(words) < 3 {
					continue
				}
				if !inHead {
					_, known = families[words[1]]
					current = of(words[1])
				}
				inHead = true
				if !known {
					current.head.WriteString(line + "\n")
				}
				continue
			}
			inHead = false
			at := strings.IndexAny(line, "{ ")
			if current == nil || at < 0 {
				continue
			}
			name, rest := line[:at], line[at:]
			if labels, ok := strings.CutPrefix(rest, "{"); ok {
				current.values.WriteString(name + "{" + label + "," + labels + "\n")
			} else {
				current.values.WriteString(name + "{" + label + "}" + rest + "\n")
			}
		}
	}
	sort.Strings(names)
	var b strings.Builder
	for _, name := range names {
		b.WriteString(families[name].head.String())
		b.WriteString(families[name].values.String())
	}
	return []byte(b.String())
}
