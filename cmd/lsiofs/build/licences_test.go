package build

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
)

// licenceTexts are sentences that occur in one licence only.
var licenceTexts = []struct{ id, sentence string }{
	{"Apache-2.0", "Apache License Version 2.0, January 2004"},
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
	{"CC0-1.0", "CC0 1.0 Universal"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
}

// licenceOf returns the SPDX expression of a text: all licences found in it.
func licenceOf(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	var found []string
	if strings.Contains(text, "Redistribution and use in source and binary forms") {
		found = []string{"BSD-2-Clause"}
		if strings.Contains(text, "may be used to endorse or promote products derived from") {
			found = []string{"BSD-3-Clause"}
		}
	}
	for _, l := range licenceTexts {
		if strings.Contains(text, l.sentence) {
			found = append(found, l.id)
		}
	}
	return strings.Join(found, " AND ")
}

// linkedModules returns the directories of the modules that lsiofs consists of, on both platforms
// of a release.
func linkedModules(t *testing.T) map[string]string {
	t.Helper()
	dirs := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		list := exec.Command("go", "list", "-buildvcs=false", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}{{end}}{{end}}", "..")
		list.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
		var stderr bytes.Buffer
		list.Stderr = &stderr
		out, err := list.Output()
		require.NoError(t, err, "%s", &stderr)
		for line := range strings.Lines(string(out)) {
			if path, dir, found := strings.Cut(strings.TrimSpace(line), "\t"); found {
				dirs[path] = dir
			}
		}
	}
	return dirs
}

// The expected licences.txt is made from the files of the module cache. It changes when a module is
// added, removed, or changes its licence. -update writes the file again, for review.
func TestLicencesMatchLinkedModules(t *testing.T) {
	var b strings.Builder
	dirs := linkedModules(t)
	require.Greater(t, len(dirs), 10)
	for _, module := range slices.Sorted(maps.Keys(dirs)) {
		files, err := filepath.Glob(filepath.Join(dirs[module], "*"))
		require.NoError(t, err)
		var texts []string
		for _, file := range files {
			name := strings.ToUpper(filepath.Base(file))
			if strings.HasPrefix(name, "LICEN") || strings.HasPrefix(name, "COPYING") {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				texts = append(texts, string(text))
			}
		}
		licence := licenceOf(strings.Join(texts, "\n"))
		require.NotEmptyf(t, licence, "%s has no licence that is known, in %s", module, dirs[module])
		fmt.Fprintf(&b, "%s %s\n", module, licence)
	}
	const file = "licences.txt"
	if goldentest.Update() {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
		return
	}
	require.Equal(t, b.String(), licencesText, "other modules are linked: run go test ./cmd/lsiofs/build -run Licences -update, and see that lsiofs may be given away with them")
}

func TestLicencesAreDistinguished(t *testing.T) {
	text, err := os.ReadFile("../../../LICENSE")
	require.NoError(t, err)
	require.Equal(t, "MIT", licenceOf(string(text)))
	require.Empty(t, licenceOf("All rights reserved."))
	require.Equal(t, "BSD-2-Clause", licenceOf("Redistribution and use in source\nand   binary forms, with or without"))
}

func TestDependenciesMatchBuild(t *testing.T) {
	first, _, _ := strings.Cut(licencesText, " ")
	list := Dependencies(&debug.BuildInfo{Deps: []*debug.Module{
		{Path: first, Version: "v1.0.0"},
		{Path: "example.org/x", Version: "v2.0.0", Replace: &debug.Module{Path: "example.org/y", Version: "v2.0.1"}},
	}})
	require.Len(t, list, 3)
	require.Equal(t, standardLibrary, list[0].Module)
	require.Contains(t, licencesText, first+" "+list[1].Licence+"\n")
	require.Equal(t, Dependency{"example.org/x", "v2.0.0 => example.org/y v2.0.1", "unknown"}, list[2])
}
