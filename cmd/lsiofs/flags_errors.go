package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagProblem describes what is wrong with a flag of c in words that a user can act on. pflag's own
// text is the parser's ("strconv.ParseUint: …").
func flagProblem(c *cobra.Command, err error) string {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if near := nearFlag(c, unknown.GetSpecifiedName()); near != "" {
			return fmt.Sprintf("%v: did you mean --%s?", err, near)
		}
	}
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err.Error()
	}
	f := invalid.GetFlag()
	want := ""
	switch f.Value.Type() {
	case "uint", "uint64":
		want = "a whole number, 0 or more"
	case "int", "int64":
		want = "a whole number"
	case "float64":
		want = "a number"
	case "duration":
		want = "a time with its unit, such as 30s or 5m"
	}
	if f.Name == "log-level" {
		want = "debug, info, warn or error"
	}
	if want == "" { // Quote the flag's own message only if it may be shown: a URL may contain a secret.
		name := "--" + f.Name
		own := errors.Unwrap(invalid).Error()
		if strings.HasPrefix(own, name+" ") {
			return own
		}
		return name + ": " + own
	}
	return fmt.Sprintf("--%s (%s) must be %s", f.Name, invalid.GetValue(), want)
}

// nearBy returns the number of letters of a name that may be mistyped. Two would be most of a short
// name.
func nearBy(name string) int {
	if len(name) <= 4 {
		return 1
	}
	return 2
}

// nearFlag returns the flag of c whose name resembles name, by cobra's rules for commands, or "". A
// flag resembles name if at most nearBy changes separate them, or if it begins with name.
func nearFlag(c *cobra.Command, name string) string {
	names := &cobra.Command{SuggestionsMinimumDistance: nearBy(name)}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	found := names.SuggestionsFor(name)
	begins := func(flag string) int { // people seldom mistype the first letter
		if name != "" && flag[0] == name[0] {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Or(begins(a)-begins(b), len(a)-len(b)) })
	if len(found) == 0 {
		return ""
	}
	return found[0]
}
