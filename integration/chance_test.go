package integration

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The gate must have the same outcome every time that it runs on a commit. Therefore tests draw
// from constants, from serve.Seed and from flags whose default is serve.DefaultSeed; rapid draws
// from RAPID_SEED, which integration/check sets.

// chanceAllowed are the files that may use a source of chance, and why their outcome does not
// depend on it.
var chanceAllowed = []struct{ path, source, why string }{
	{"integration/bench/service/server.go", "top-level functions of math/rand/v2", "delays of the server that a benchmark measures with: the bytes are the same"},
	{"integration/cluster/control_test.go", "crypto/rand", "the key of service accounts: which one does not matter"},
	{"integration/slurm/cluster_test.go", "crypto/rand", "the key of munge: which one does not matter"},
	{"pipeline/storage/remote/web/certificates_test.go", "crypto/rand", "keys of certificates: which ones does not matter"},
}

func TestTestsUseOnlyConstantSeeds(t *testing.T) {
	used := map[int]bool{}
	files := 0
	require.NoError(t, filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel("..", path)
		if e.IsDir() && (name != "." && strings.HasPrefix(e.Name(), ".") || e.Name() == "node_modules" || e.Name() == "bin") {
			return fs.SkipDir
		}
		if e.IsDir() || !isTestSource(filepath.ToSlash(name)) {
			return nil
		}
		files++
		found, err := chanceIn(path, nil)
		require.NoError(t, err)
	each:
		for _, c := range found {
			for i, a := range chanceAllowed {
				if a.path == filepath.ToSlash(name) && a.source == c.source {
					used[i] = true
					continue each
				}
			}
			t.Errorf("%s:%d: %s: draw from serve.Seed or a constant, so that the outcome is always the same", name, c.line, c.source)
		}
		return nil
	}))
	require.Greater(t, files, 500, "the walk sees the tests")
	for i, a := range chanceAllowed {
		require.True(t, used[i], "%s no longer uses %s: remove it from chanceAllowed", a.path, a.source)
	}
}

// isTestSource reports whether a Go file is a test, or a package that only tests use.
func isTestSource(path string) bool {
	if !strings.HasSuffix(path, ".go") {
		return false
	}
	dir, _ := filepath.Split(path)
	return strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "integration/") || strings.HasSuffix(dir, "test/")
}

// chance is a source of chance in a file.
type chance struct {
	line   int
	source string
}

// seeded are the names in the packages of math/rand that do not draw from a generator seeded by the
// runtime.
var seeded = map[string]bool{
	"New": true, "NewSource": true, "NewPCG": true, "NewChaCha8": true, "NewZipf": true,
	"Rand": true, "Source": true, "Source64": true, "PCG": true, "ChaCha8": true, "Zipf": true,
}

// chanceIn finds the sources of chance in a Go file; src is its text, or nil.
func chanceIn(path string, src any) (found []chance, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	add := func(at ast.Node, source string) {
		found = append(found, chance{files.Position(at.Pos()).Line, source})
	}
	packages := map[string]string{} // import paths by their names in the file
	for _, i := range file.Imports {
		pkg, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(pkg, "/v2")
		name = name[strings.LastIndexByte(name, '/')+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		switch {
		case pkg == "crypto/rand" || pkg == "testing/quick":
			add(i, pkg)
		case name == "." && isRand(pkg):
			add(i, "top-level functions of "+pkg)
		}
		packages[name] = pkg
	}
	// of returns the package and the name of a function or type of another package.
	of := func(n ast.Node) (pkg, name string) {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				return packages[x.Name], s.Sel.Name
			}
		}
		return "", ""
	}
	// byClock reports whether an expression depends on the clock or the process.
	clocks := map[string]bool{} // variables that do
	byClock := func(n ast.Node) (is bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch pkg, name := of(n); {
			case pkg == "time" && (name == "Now" || name == "Since"), pkg == "os" && (name == "Getpid" || name == "Getppid"):
				is = true
			}
			if x, ok := n.(*ast.Ident); ok && clocks[x.Name] {
				is = true
			}
			return !is
		})
		return is
	}
	// becomes checks a value that is assigned to a name.
	becomes := func(name string, value ast.Expr) {
		if !byClock(value) {
			return
		}
		if strings.Contains(strings.ToLower(name), "seed") {
			add(value, "a seed by the clock")
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			clear(clocks)
		case *ast.SelectorExpr:
			switch pkg, name := of(n); {
			case isRand(pkg) && !seeded[name]:
				add(n, "top-level functions of "+pkg)
			case pkg == "hash/maphash" && name == "MakeSeed":
				add(n, "maphash.MakeSeed")
			}
		case *ast.CallExpr:
			if pkg, name := of(n.Fun); isRand(pkg) && seeded[name] {
				for _, arg := range n.Args {
					if pkg, _ := of(call(arg)); !isRand(pkg) && byClock(arg) { // otherwise it is found separately
						add(arg, "a seed by the clock")
					}
				}
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if len(n.Rhs) != len(n.Lhs) {
					break
				}
				name := nameOf(left)
				becomes(name, n.Rhs[i])
				if _, plain := left.(*ast.Ident); plain && isNumber(n.Rhs[i]) && byClock(n.Rhs[i]) {
					clocks[name] = true
				}
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) {
					becomes(name.Name, n.Values[i])
				}
			}
		case *ast.KeyValueExpr:
			becomes(nameOf(n.Key), n.Value)
		}
		return true
	})
	return found, nil
}

func isRand(pkg string) bool { return pkg == "math/rand" || pkg == "math/rand/v2" }

// call returns the function of a call, or nil.
func call(n ast.Expr) ast.Node {
	if c, ok := n.(*ast.CallExpr); ok {
		return c.Fun
	}
	return nil
}

// isNumber reports whether an expression converts a time to a number, such as t.UnixNano().
func isNumber(n ast.Expr) (is bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			is = is || strings.HasPrefix(s.Sel.Name, "Unix") || s.Sel.Name == "Nanosecond" || strings.HasPrefix(s.Sel.Name, "Getp")
		}
		return !is
	})
	return is
}

// nameOf returns the last name of an assignment's target: seed for *s.seed.
func nameOf(n ast.Expr) string {
	switch n := n.(type) {
	case *ast.Ident:
		return n.Name
	case *ast.SelectorExpr:
		return n.Sel.Name
	case *ast.StarExpr:
		return nameOf(n.X)
	case *ast.ParenExpr:
		return nameOf(n.X)
	}
	return ""
}

func TestSourcesOfRandomnessAreFound(t *testing.T) {
	const clock, v1, v2 = "a seed by the clock", "top-level functions of math/rand", "top-level functions of math/rand/v2"
	for _, c := range []struct {
		name, imports, body string
		want                []string
	}{
		{name: "a constant", imports: `"math/rand/v2"`, body: `_ = rand.New(rand.NewPCG(1, 2)).IntN(3)`},
		{name: "a seed that is passed on", imports: `"math/rand/v2"`, body: `var r *rand.Rand = rand.New(rand.NewPCG(serve.Seed(t), 0)); r.Perm(3); r.Shuffle(1, nil)`},
		{name: "a time that is no seed", imports: `"math/rand/v2"; "time"`, body: `began := time.Now(); r := rand.New(rand.NewPCG(1, 2)); time.Sleep(time.Duration(r.IntN(9))); _ = time.Since(began)`},
		{name: "a name by the clock", imports: `"time"`, body: `name := time.Now().UnixNano(); _ = name`},
		{name: "a seed of the v2 package's own", imports: `"math/rand/v2"`, body: `_ = rand.IntN(3); go rand.Shuffle(3, nil); _ = rand.N(5)`, want: []string{v2, v2, v2}},
		{name: "a function that is not called here", imports: `"math/rand/v2"`, body: `draw := rand.Uint64; _ = draw`, want: []string{v2}},
		{name: "the old package", imports: `"math/rand"`, body: `rand.Seed(1); _ = rand.Intn(3); _ = rand.New(rand.NewSource(4))`, want: []string{v1, v1}},
		{name: "by another name", imports: `dice "math/rand/v2"`, body: `_ = dice.IntN(3)`, want: []string{v2}},
		{name: "by no name", imports: `. "math/rand/v2"`, body: `_ = IntN(3)`, want: []string{v2}},
		{name: "another package of that name", imports: `"example.com/rand"`, body: `_ = rand.IntN(3)`},
		{name: "a generator by the clock", imports: `"math/rand/v2"; "time"`, body: `_ = rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))`, want: []string{clock}},
		{name: "an old generator by the clock", imports: `"math/rand"; "time"`, body: `_ = rand.New(rand.NewSource(time.Now().Unix()))`, want: []string{clock}},
		{name: "a generator by the process", imports: `"math/rand/v2"; "os"`, body: `_ = rand.NewPCG(uint64(os.Getpid()), 0)`, want: []string{clock}},
		{name: "a generator by a variable", imports: `"math/rand/v2"; "time"`, body: `n := time.Now().UnixNano(); _ = rand.NewPCG(uint64(n), 0)`, want: []string{clock}},
		{name: "a seed in a variable", imports: `"time"`, body: `seed := uint64(time.Now().UnixNano()); _ = seed`, want: []string{clock}},
		{name: "a seed in a declaration", imports: `"time"`, body: `var mySeed = time.Now().Unix(); _ = mySeed`, want: []string{clock}},
		{name: "a seed in a flag", imports: `"time"`, body: `*huntSeed = uint64(time.Now().UnixNano())`, want: []string{clock}},
		{name: "a seed in a field", imports: `"time"`, body: `s.order.Seed = uint64(time.Now().UnixNano()); _ = order{Seed: uint64(time.Now().Unix())}`, want: []string{clock, clock}},
		{name: "bytes of the kernel", imports: `"crypto/rand"`, body: `_, _ = rand.Read(nil)`, want: []string{"crypto/rand"}},
		{name: "quick, which seeds itself", imports: `"testing/quick"`, body: `_ = quick.Check(nil, nil)`, want: []string{"testing/quick"}},
		{name: "a hash's seed", imports: `"hash/maphash"`, body: `_ = maphash.MakeSeed()`, want: []string{"maphash.MakeSeed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, err := chanceIn("x_test.go", fmt.Sprintf("package x\n\nimport (%s)\n\nfunc f() { %s }\n", c.imports, c.body))
			require.NoError(t, err)
			var sources []string
			for _, f := range found {
				sources = append(sources, f.source)
			}
			require.Equal(t, c.want, sources)
		})
	}
	for path, is := range map[string]bool{
		"fs/names_test.go": true, "fs/names.go": false, "integration/hunt/hunt_test.go": true, "integration/serve/serve.go": true,
		"pipeline/read/readtest/dataset.go": true, "pipeline/order/order.go": false, "integration/check": false,
	} {
		require.Equal(t, is, isTestSource(path), path)
	}
}
