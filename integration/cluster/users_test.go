package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// users sets up what followers of a page have: a copy of the repository, kubectl and helm, which
// run on the first node, and podman.
func (c *cluster) users() {
	t := c.t
	c.repo = filepath.Join(c.dir, "repo")
	require.NoError(t, os.Mkdir(c.repo, 0o755))
	for _, name := range []string{"go.mod", "go.sum", "cmd", "fs", "pipeline", "uring", "checkpoint", "examples"} {
		out, err := exec.Command("cp", "-r", filepath.Join("../..", name), c.repo).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	tools := filepath.Join(c.dir, "tools")
	for _, d := range []string{tools, c.dir + "/images"} {
		require.NoError(t, os.Mkdir(d, 0o755))
	}
	for _, name := range []string{"kubectl", "helm"} {
		script := fmt.Sprintf("#!/bin/sh\nexec nsenter --target %s --net --mount --root --wd=\"$PWD\" -- %s/%s --kubeconfig=%s \"$@\"\n", c.nodes[0].PID, c.bin, name, c.kubeconfig())
		require.NoError(t, os.WriteFile(filepath.Join(tools, name), []byte(script), 0o755))
	}
	c.program("./podman", filepath.Join(tools, "podman"))
	c.base(c.dir + "/base.tar")
	sockets := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		sockets[i] = n.socket()
	}
	c.tools = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "HELM_CACHE_HOME="+c.dir+"/home", "HELM_CONFIG_HOME="+c.dir+"/home", "HELM_DATA_HOME="+c.dir+"/home",
		"IMAGES="+c.dir+"/images", "BASE="+c.dir+"/base.tar", "CONTAINERD="+strings.Join(sockets, ","))
	// The program of the test's own pods, and of all pods' sandboxes.
	context := filepath.Join(c.dir, "test")
	require.NoError(t, os.Mkdir(context, 0o755))
	c.program("./pod", filepath.Join(context, "pod"))
	c.write("test/Containerfile", "FROM scratch\nCOPY pod /pod\nENTRYPOINT [\"/pod\", \"pause\"]\n")
	c.follow("podman build -t test:1 " + context)
}

// program builds a program of the test.
func (c *cluster) program(source, to string) {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-buildvcs=false", "-o", to, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, "%s", out)
}

// follow runs lines of a page like a user, in the repository.
func (c *cluster) follow(lines string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "bash", "-euo", "pipefail", "-c", lines)
	cmd.Dir, cmd.Env = c.repo, c.tools
	begun := time.Now()
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, "%s\n%s", lines, out)
	c.t.Logf("%.1f s: %s", time.Since(begun).Seconds(), strings.TrimSpace(lines))
	return string(out)
}

// page returns the blocks of commands of a page by heading.
func (c *cluster) page(path string) map[string][]string {
	b, err := os.ReadFile(filepath.Join(c.repo, path))
	require.NoError(c.t, err)
	blocks := map[string][]string{}
	heading := ""
	for _, m := range regexp.MustCompile("(?ms)^#+ (.*?)$|^```sh\n(.*?)^```$").FindAllStringSubmatch(string(b), -1) {
		if m[1] != "" {
			heading = m[1]
			continue
		}
		blocks[heading] = append(blocks[heading], m[2])
	}
	return blocks
}

// edit changes a file in the user's copy: each old text, which must occur once, is replaced by the
// new one.
func (c *cluster) edit(path string, oldNew ...string) {
	c.t.Helper()
	path = filepath.Join(c.repo, path)
	b, err := os.ReadFile(path)
	require.NoError(c.t, err)
	text := string(b)
	for i := 0; i < len(oldNew); i += 2 {
		require.Equal(c.t, 1, strings.Count(text, oldNew[i]), oldNew[i])
		text = strings.Replace(text, oldNew[i], oldNew[i+1], 1)
	}
	require.NoError(c.t, os.WriteFile(path, []byte(text), 0o644))
}
