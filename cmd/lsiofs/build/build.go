package build

import (
	_ "embed"
	"runtime"
	"runtime/debug"
	"strings"
)

// Info identifies a program's build.
type Info struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // the tree had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Dependencies are the linked modules, only if requested.
	Dependencies []Dependency `json:"dependencies,omitempty"`
}

// Of returns the information that Go has written into this program. A version or commit set at link
// time takes precedence; "" for none.
func Of(version, commit string) Info {
	b := Info{Version: version, Commit: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		if b.Version == "" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	if commit != "" {
		b.Commit = commit
	}
	return b
}

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
