package build

import (
	"runtime"
	"runtime/debug"
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
