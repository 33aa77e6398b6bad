package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// addMix defines --mix and the flags that belong to it, for commands that take a mixture in place
// of DATASET. The dataset's flags have to be defined already.
func (d *datasetFlags) addMix(c *cobra.Command) {
	m := &d.spec.Mix
	d.flags.Var(sourcesValue{m}, "mix", "instead of DATASET: mix several datasets by weight, one `NAME=WEIGHT:DATASET` each: --mix web=70:/data/web --mix code=30:/data/code. For a bucket, the weight may be followed by ,anonymous ,requester-pays ,region=REGION or ,addressing=STYLE")
	d.flags.Var(mixLengthValue{m, &d.spec.Order.Length}, "mix-length", "length of a mixture's epoch: `first` (default): the longest epoch in which no record repeats; all: until every record has come; or a number of records")
	m.By = spec.MixByRecords
	enumFlag(c, "mix-by", "whether the weights of a mixture are shares of records or of bytes", &m.By, spec.MixByRecords, spec.MixByBytes)
}

// arguments checks the arguments of a command whose first one is DATASET, which is absent with
// --mix.
func (d *datasetFlags) arguments(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if !d.given("mix") {
			return exactArgs(names...)(c, args)
		}
		if len(args) == len(names) {
			return exit.Usagef("--mix names all datasets of a mixture: leave %s out", remote.CleanText(args[0]))
		}
		return exactArgs(names[1:]...)(c, args)
	}
}

// withDataset returns a command's arguments including DATASET, which is "" for a mixture.
func (d *datasetFlags) withDataset(args []string) []string {
	if d.given("mix") {
		return append([]string{""}, args...)
	}
	return args
}

// checkMix refuses flags that would have no effect.
func (d *datasetFlags) checkMix() error {
	if !d.given("mix") && (d.given("mix-length") || d.given("mix-by")) {
		return exit.Usagef("--mix-length and --mix-by belong to --mix: name the sources, as in --mix web=70:/data/web --mix code=30:/data/code")
	}
	return nil
}

// sourcesValue is the value of --mix, which may be repeated, once for each source.
type sourcesValue struct{ m *spec.Mix }

func (v sourcesValue) String() string {
	if v.m == nil {
		return ""
	}
	return v.m.String()
}

func (v sourcesValue) Set(text string) error {
	s, err := spec.ParseSource(text)
	if err == nil {
		v.m.Sources = append(v.m.Sources, s)
	}
	return err
}

func (v sourcesValue) Type() string { return "source" }

// mixLengthValue is the value of --mix-length: a number, "first" or "all".
type mixLengthValue struct {
	m *spec.Mix
	n *uint64
}

func (v mixLengthValue) String() string {
	switch {
	case v.m == nil:
		return ""
	case *v.n > 0:
		return strconv.FormatUint(*v.n, 10)
	}
	return string(v.m.Length)
}

func (v mixLengthValue) Set(text string) error {
	*v.n, v.m.Length = 0, ""
	if l := spec.MixLength(text); l == spec.MixFirst || l == spec.MixAll {
		v.m.Length = l
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < 1 || n > spec.MaxMixLength {
		return exit.Usagef("%q is not the length of an epoch: write a number of records from 1 to %d, or first, or all", text, uint64(spec.MaxMixLength))
	}
	*v.n = n
	return nil
}

func (v mixLengthValue) Type() string { return "N|first|all" }
