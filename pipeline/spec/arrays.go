package spec

import (
	"regexp"
	"strings"
)

// Array is one of several arrays whose rows are read together as records. Pattern selects its
// files, relative to the dataset's directory.
type Array struct{ Name, Pattern string }

// maxArrays bounds Format.Arrays.
const maxArrays = 64

// nameOfArray matches the allowed names of fields of structured arrays: Python identifiers, so that
// no quoting is needed anywhere.
var nameOfArray = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

func (f Format) validateArrays(p *problems) {
	if len(f.Arrays) == 0 {
		return
	}
	if f.Name != "npy" && f.Name != "auto" {
		p.addf("--array needs --format npy, not %q", f.Name)
	}
	if n := len(f.Arrays); n < 2 || n > maxArrays {
		p.addf("--array is given once for each array, for 2 to %d of them, not %d: one array needs no --array", maxArrays, n)
	}
	seen := map[string]bool{}
	for _, a := range f.Arrays {
		if !nameOfArray.MatchString(a.Name) {
			p.addf("--array: the name %q must be letters, digits and _, up to 64 of them, and not begin with a digit", a.Name)
		}
		if seen[a.Name] {
			p.addf("--array %s is there twice", a.Name)
		}
		seen[a.Name] = true
		if a.Pattern == "" || strings.HasPrefix(a.Pattern, "/") {
			p.addf("--array %s: the pattern %q must be relative to the dataset's directory", a.Name, a.Pattern)
		}
	}
}

// ArrayNames returns the names of the arrays, joined by commas.
func (f Format) ArrayNames() string {
	names := make([]string, len(f.Arrays))
	for i, a := range f.Arrays {
		names[i] = a.Name
	}
	return strings.Join(names, ",")
}
