package build

import (
	_ "embed"
	"runtime"
	"runtime/debug"
	"strings"
)

// licencesText names the licence of each module linked into lsiofs, one a line: path, SPDX
// expression. A test generates it from the modules' own files and fails when it is out of date.
//
//go:embed licences.txt
var licencesText string

// Dependency is a module that is linked into this program.
type Dependency struct {
	Module  string `json:"module"`
	Version string `json:"version"`
	Licence string `json:"licence"`
}

// standardLibrary is Go's own code, under Go's licence.
const standardLibrary = "std"

// Dependencies returns the standard library and the modules of a build, sorted by path.
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
