package build

import (
	_ "embed"
	"runtime"
	"runtime/debug"
	"strings"
)

// licencesText names the licence of each module that is linked into lsiofs, a
// line each: path, SPDX expression. A test makes it of the modules' own files, and
// fails when it is not theirs any more.
//
//go:embed licences.txt
var licencesText string

// Dependency is a module that is linked into this program.
type Dependency struct {
	Module  string `json:"module"`
	Version string `json:"version"`
	Licence string `json:"licence"`
}

// standardLibrary is what comes with Go, under Go's licence.
const standardLibrary = "std"

// Dependencies are the modules of a build, in the order of their paths, behind
// the standard library.
func Dependencies(info *debug.BuildInfo) []Dependency {
	licences := map[string]string{}
	for line := range strings.Lines(licencesText) {
		if module, licence, found := strings.Cut(strings.TrimSpace(line), " "); found {
			licences[module] = licence
		}
	}
	list := []Dependency{{standardLibrary, runtime.Version(), "BSD-3-Clause"}}
	for _, m := range info.Deps {
		d := Dependency{m.Path, m.Version, licences[m.Path]}
		if m.Replace != nil {
			d.Version += " => " + m.Replace.Path + " " + m.Replace.Version
		}
		if d.Licence == "" {
			d.Licence = "unknown"
		}
		list = append(list, d)
	}
	return list
}
