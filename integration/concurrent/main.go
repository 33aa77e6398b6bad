// Command concurrent prints the directories of the packages that are worth testing with the race
// detector, one per line: those with tests in which something may run concurrently.
//
//	go run ./integration/concurrent [DIR]
//
// DIR is the root of a module, by default the current directory; other modules below it are left
// out, and so is the directory integration, whose tests run programs.
//
// It reads the source, for all platforms and build tags. A package is listed if its code or its
// tests have a go statement, call t.Parallel or AfterFunc, or import a package that synchronizes.
// In a package without any of these the race detector can't find anything: what its tests call in
// other packages is tested there.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	dirs, err := concurrent(root)
	if err == nil && len(dirs) == 0 {
		err = fmt.Errorf("no package below %s has tests in which something is concurrent", root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "concurrent:", err)
		os.Exit(1)
	}
	for _, dir := range dirs {
		if dir != "." {
			dir = "./" + dir
		}
		fmt.Println(dir)
	}
}

// concurrent returns the directories of the listed packages below root, relative to root and
// sorted.
func concurrent(root string) ([]string, error) {
	tested, counts := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if leftOut(root, path, e.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		tested[dir] = tested[dir] || strings.HasSuffix(path, "_test.go")
		counts[dir] = counts[dir] || isConcurrent(file)
		return nil
	})
	var dirs []string
	for dir := range tested {
		if tested[dir] && counts[dir] {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs, err
}

func leftOut(root, path, name string) bool {
	if path == root {
		return false
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil || path == filepath.Join(root, "integration") || name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

// isConcurrent reports whether a file runs something concurrently, or expects to be called
// concurrently. A sync.Pool or a value that is computed once does not count: tests use these for
// speed.
func isConcurrent(file *ast.File) bool {
	sync := ""
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue
		}
		switch {
		case path == "sync" && i.Name == nil:
			sync = "sync"
		case path == "sync", path == "sync/atomic", strings.HasPrefix(path, "golang.org/x/sync/"):
			return true
		}
	}
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.SelectorExpr:
			of, _ := n.X.(*ast.Ident)
			switch {
			case n.Sel.Name == "Parallel", n.Sel.Name == "AfterFunc":
				found = true
			case of != nil && of.Name == sync:
				found = found || !slices.Contains([]string{"Pool", "Once", "OnceFunc", "OnceValue", "OnceValues"}, n.Sel.Name)
			}
		}
		return !found
	})
	return found
}
