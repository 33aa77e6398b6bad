package fs

import (
	"sort"
	"strconv"
	"strings"
)

// family is one metric of the file metrics with all its values, in Prometheus' text format
// (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4). It is written by this
// package because the client library, with which the tests read it, would bring in all of protobuf:
// 1.3 MB of the program.
type family struct {
	name, help string
	kind       metricKind
	label      string // the name of the label; "" for a metric without one
	values     []labelledValue
}

type metricKind string

const (
	counterKind metricKind = "counter"
	gaugeKind   metricKind = "gauge"
)

// labelledValue is a value, and its value of the family's label.
type labelledValue struct {
	of    string
	value float64
}

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// MetricLabel returns a label with its value in the text format of metrics: name="value".
func MetricLabel(name, value string) string {
	return name + `="` + labelEscapes.Replace(value) + `"`
}

// exposition renders families sorted by name, and the values of each by label. A family without
// values is left out. It sorts its argument in place.
func exposition(families []family) []byte {
	// slices.SortFunc would be compiled for each type: 24 KB of the program.
	sort.Slice(families, func(i, j int) bool { return families[i].name < families[j].name })
	var b []byte
	for i := range families {
		b = families[i].appendTo(b)
	}
	return b
}

func (f *family) appendTo(b []byte) []byte {
	if len(f.values) == 0 {
		return b
	}
	sort.Slice(f.values, func(i, j int) bool { return f.values[i].of < f.values[j].of })
	b = append(append(append(b, "# HELP "...), f.name...), ' ')
	b = append(append(b, helpEscapes.Replace(f.help)...), '\n')
	b = append(append(append(b, "# TYPE "...), f.name...), ' ')
	b = append(append(b, f.kind...), '\n')
	for _, v := range f.values {
		b = append(b, f.name...)
		if f.label != "" {
			b = append(append(append(b, '{'), MetricLabel(f.label, v.of)...), '}')
		}
		b = strconv.AppendFloat(append(b, ' '), v.value, 'g', -1, 64)
		b = append(b, '\n')
	}
	return b
}

// metric is a family, and how to compute its values from S, a part of a mount's state: values calls
// out with each value and its label, "" for a metric without one.
type metric[S any] struct {
	kind       metricKind
	name, help string
	label      string
	values     func(s *S, out func(value float64, label string))
}

// metricOf is a metric of one value without a label.
func metricOf[S any](kind metricKind, name, help string, value func(s *S) float64) metric[S] {
	return metric[S]{kind, name, help, "", func(s *S, out func(float64, string)) { out(value(s), "") }}
}

// labelled is a counter for each key of a map.
func labelled[S any](name, help, label string, values func(s *S) map[string]uint64) metric[S] {
	return metric[S]{counterKind, name, help, label, func(s *S, out func(float64, string)) {
		for of, n := range values(s) {
			out(float64(n), of)
		}
	}}
}

// familiesOf appends the families of metrics with their values in s; none if s is nil.
func familiesOf[S any](to []family, metrics []metric[S], s *S) []family {
	if s == nil {
		return to
	}
	for _, m := range metrics {
		f := family{name: m.name, help: m.help, kind: m.kind, label: m.label}
		m.values(s, func(value float64, of string) { f.values = append(f.values, labelledValue{of, value}) })
		to = append(to, f)
	}
	return to
}
