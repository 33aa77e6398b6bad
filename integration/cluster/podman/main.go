// Command podman implements as much of podman as the example pages use, for machines that can't
// reach a registry:
//
//	podman build [--network none] -t NAME [-f CONTAINERFILE] CONTEXT
//
// It supports FROM, COPY and ENTRYPOINT, and loads the image on all nodes of the cluster. Images
// from registries are replaced by a layer of this machine's own programs.
//
//	IMAGES=DIR                  where it keeps what it has built
//	BASE=FILE                   the layer that stands for images of registries
//	CONTAINERD=SOCKET,SOCKET…   of the nodes
package main

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "podman:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || args[0] != "build" {
		return fmt.Errorf("only build is known: %v", args)
	}
	f := flag.NewFlagSet("build", flag.ContinueOnError)
	name, file := f.String("t", "", "name of the image"), f.String("f", "", "its Containerfile")
	f.String("network", "", "of what it runs, which is nothing")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if f.NArg() != 1 || *name == "" {
		return fmt.Errorf("wanted: -t NAME CONTEXT")
	}
	if *file == "" {
		*file = filepath.Join(f.Arg(0), "Containerfile")
	}
	b := build{context: f.Arg(0), root: rootOf("localhost/" + *name)}
	if err := os.RemoveAll(b.root); err != nil {
		return err
	}
	if err := os.MkdirAll(b.root, 0o755); err != nil {
		return err
	}
	if err := b.file(*file); err != nil {
		return fmt.Errorf("%s: %w", *file, err)
	}
	return b.save("localhost/" + *name)
}

// rootOf returns the directory of the files that an image has copied.
func rootOf(image string) string {
	return filepath.Join(os.Getenv("IMAGES"), strings.NewReplacer("/", "_", ":", "_").Replace(image))
}

// build is an image that is being built.
type build struct {
	context, root string
	layers        []string
	entrypoint    []string
}

func (b *build) file(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		switch words[0] {
		case "FROM":
			if words[1] != "scratch" {
				b.layers = append(b.layers, os.Getenv("BASE"))
			}
		case "COPY":
			err = b.copy(words[1:])
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "ENTRYPOINT")), &b.entrypoint)
		default:
			err = fmt.Errorf("unknown: %s", words[0])
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// copy copies files, and the contents of directories.
func (b *build) copy(words []string) error {
	from := b.context
	if image, is := strings.CutPrefix(words[0], "--from="); is {
		from, words = rootOf(image), words[1:]
	}
	to := filepath.Join(b.root, words[len(words)-1])
	dir := to
	if !strings.HasSuffix(words[len(words)-1], "/") {
		dir = filepath.Dir(to)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, word := range words[:len(words)-1] {
		source := filepath.Join(from, word)
		if info, err := os.Stat(source); err == nil && info.IsDir() {
			source += "/."
		}
		if out, err := exec.Command("cp", "-r", source, to).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

// save writes the image in the format of `docker save`, and loads it on all nodes.
func (b *build) save(name string) error {
	own := b.root + ".layer.tar"
	if out, err := exec.Command("tar", "-C", b.root, "--owner=0", "--group=0", "-cf", own, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	b.layers = append(b.layers, own)
	var sums, names []string
	for i, path := range b.layers {
		sum, err := digest(path)
		if err != nil {
			return err
		}
		sums, names = append(sums, "sha256:"+sum), append(names, fmt.Sprintf("layer-%d.tar", i))
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": b.entrypoint, "Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": sums},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{name}, "Layers": names}})
	if err != nil {
		return err
	}
	path := b.root + ".tar"
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	w := tar.NewWriter(out)
	for at, content := range map[string][]byte{"config.json": config, "manifest.json": manifest} {
		if err := w.WriteHeader(&tar.Header{Name: at, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	for i, layer := range b.layers {
		if err := add(w, names[i], layer); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	var nodes errgroup.Group
	for socket := range strings.SplitSeq(os.Getenv("CONTAINERD"), ",") {
		nodes.Go(func() error {
			if out, err := exec.Command("ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", path).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", socket, err, out)
			}
			return nil
		})
	}
	if err := nodes.Wait(); err != nil {
		return err
	}
	return os.Remove(path)
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func add(w *tar.Writer, name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
