package main

import (
	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// sampleFlags are --sample and --sample-seed.
type sampleFlags struct {
	given func(flag string) bool
}

// addSample defines the flags of a command. They write to sample.
func addSample(c *cobra.Command, sample *spec.Subsample) sampleFlags {
	f := c.Flags()
	f.Var(sampleValue{sample}, "sample", "use a different n-th of the records in each epoch: with 1/8, any 8 consecutive epochs are one pass over the dataset")
	f.Uint64Var(&sample.Seed, "sample-seed", sample.Seed, "seed that assigns each record to one of the n epochs")
	return sampleFlags{f.Changed}
}

// check refuses a seed that would have no effect.
func (f sampleFlags) check() error {
	if !f.given("sample") && f.given("sample-seed") {
		return exit.Usagef("--sample-seed belongs to --sample: name a share, as in --sample 1/8")
	}
	return nil
}

// sampleValue is the value of --sample, such as "1/8".
type sampleValue struct{ s *spec.Subsample }

func (v sampleValue) String() string {
	if v.s == nil || v.s.Of == 0 {
		return ""
	}
	return v.s.String()
}

// Set leaves the seed unchanged, because it may have been parsed before.
func (v sampleValue) Set(text string) error {
	s, err := spec.ParseSample(text)
	if err == nil {
		v.s.Of = max(s.Of, 1) // 1/1 was given
	}
	return err
}

func (v sampleValue) Type() string { return "1/n" }
