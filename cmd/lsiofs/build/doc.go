// Package build identifies the running lsiofs: version, commit, Go version and platform, and the
// linked modules with their licences. A test of this package generates licences.txt from the
// modules' own files.
package build
