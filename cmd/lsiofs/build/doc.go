// Package build says which lsiofs is running: version, commit, Go and platform, and
// which modules are linked into it, under which licences. licences.txt is made by a
// test of this package from the modules' own files.
package build
