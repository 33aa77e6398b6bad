package main

import (
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// arraysValue is the value of --array, which may be repeated, once for each array.
type arraysValue struct{ p *[]spec.Array }

func (v arraysValue) String() string {
	if v.p == nil {
		return ""
	}
	var texts []string
	for _, a := range *v.p {
		texts = append(texts, a.Name+"="+a.Pattern)
	}
	return strings.Join(texts, " ")
}

func (v arraysValue) Set(s string) error {
	name, pattern, is := strings.Cut(s, "=") // without a name it is an array of format zarr
	if !is {
		name, pattern = "", s
	}
	*v.p = append(*v.p, spec.Array{Name: name, Pattern: pattern})
	return nil
}

func (v arraysValue) Type() string { return "NAME=PATTERN" }
