package build

import (
	"runtime"
	"runtime/debug"
)

// Info says which program this is.
type Info struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // the tree had changes that are not in the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Dependencies are what is linked in; only where they are asked for.
	Dependencies []Dependency `json:"dependencies,omitempty"`
}

// Of gives what Go has written into this program. A version or a commit that
// was set when it was linked goes before that; "" for none.
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
