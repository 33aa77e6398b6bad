package main

import (
	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// splitFlags are --split, --split-seed and --split-by.
type splitFlags struct {
	split *spec.Split
	given func(flag string) bool
}

// addSplit defines the flags of a command. They write to split.
func addSplit(c *cobra.Command, split *spec.Split) splitFlags {
	f := c.Flags()
	f.Var(partValue{&split.Part}, "split", "use only a part of the dataset, such as 0..0.9 for training and 0.9..1 for validation; parts that don't overlap share no record")
	f.Uint64Var(&split.Seed, "split-seed", split.Seed, "seed of the split; must be the same for all parts")
	enumFlag(c, "split-by", "what a split keeps together: a record (default), a shard, or a unit, which is the data between two entry points of a shard",
		&split.By, spec.SplitByRecord, spec.SplitByShard, spec.SplitByUnit)
	return splitFlags{split, f.Changed}
}

// check refuses flags that would have no effect.
func (f splitFlags) check() error {
	if !f.given("split") && (f.given("split-seed") || f.given("split-by")) {
		return exit.Usagef("--split-seed and --split-by belong to --split: name a part, as in --split 0..0.9")
	}
	if f.given("split-by") && f.split.By == "" {
		return exit.Usagef("--split-by must be one of record, shard, unit")
	}
	return nil
}

// partValue is the value of --split, such as "0..0.9".
type partValue struct{ p *spec.Part }

func (v partValue) String() string {
	if v.p == nil || *v.p == (spec.Part{}) {
		return ""
	}
	return v.p.String()
}

func (v partValue) Set(s string) (err error) {
	*v.p, err = spec.ParsePart(s)
	return err
}

func (v partValue) Type() string { return "a..b" }
