package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
)

// excludeValue is the value of --exclude, which may be repeated, once for each pattern.
type excludeValue struct{ p *[]string }

func addExclude(f *pflag.FlagSet, p *[]string) {
	f.Var(excludeValue{p}, "exclude", "leave out files that match this `pattern`, relative to DATASET: --exclude 'val*' (at any depth), --exclude 'old/**'; may be repeated")
}

func (v excludeValue) String() string {
	if v.p == nil {
		return ""
	}
	return strings.Join(*v.p, " ")
}

func (v excludeValue) Set(s string) error {
	if err := discover.ExcludeError(s); err != nil {
		return err
	}
	*v.p = append(*v.p, s)
	return nil
}

func (v excludeValue) Type() string { return "pattern" }
