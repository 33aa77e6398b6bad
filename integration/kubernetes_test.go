package integration

import (
	"crypto/md5"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

const kubernetes = "../examples/kubernetes"

// inKubernetesModule prepares a go command in the examples' own module. Its
// libraries come from the network, once.
func inKubernetesModule(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", args...)
	c.Dir = kubernetes
	return c
}

// decoder builds the program that decodes manifests.
var decoder = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "decode-manifests")
	c := exec.Command("go", "build", "-buildvcs=false", "-o", path, ".")
	c.Dir = kubernetes
	out, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

func needKubernetesModule(t *testing.T) {
	t.Helper()
	if out, err := inKubernetesModule(t, "mod", "download").CombinedOutput(); err != nil {
		missing(t, "the libraries of Kubernetes can't be loaded: %v: %s", err, out)
	}
}

func TestExampleKubernetesManifestsAreSound(t *testing.T) {
	needKubernetesModule(t)
	out, err := inKubernetesModule(t, "test", "-count=1", "./...").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// container, podSpec and object are what the tests use of Kubernetes' types.
type container struct {
	Name, Image   string
	RestartPolicy string
	Command, Args []string
	Env           []struct{ Name, Value string }
	EnvFrom       []struct{ ConfigMapRef struct{ Name string } }
	StartupProbe  struct{ Exec struct{ Command []string } }
	VolumeMounts  []struct{ Name, MountPath string }
}

type podSpec struct {
	InitContainers, Containers []container
	Volumes                    []struct {
		Name                  string
		PersistentVolumeClaim struct{ ClaimName string }
	}
}

type object struct {
	Kind string
	Spec struct {
		podSpec
		Completions int
		Template    struct{ Spec podSpec }
	}
}

// manifest decodes a manifest as an API server would, and gives its one object.
func manifest(t *testing.T, path string) object {
	t.Helper()
	needKubernetesModule(t)
	program, err := decoder()
	require.NoError(t, err)
	var o object
	require.NoError(t, json.Unmarshal(output(t, program, path), &o))
	return o
}

// cluster runs the containers of pods as processes of this machine: what they run,
// with which words and variables, is the manifest's; where it says a volume, it is a
// directory.
type cluster struct {
	t      *testing.T
	claims map[string]string // directories of persistent volumes
	run    map[string]string // the ConfigMap of this name
	app    string            // /app of the training image
	bin    string            // its /usr/local/bin
}

func newCluster(t *testing.T, data string) *cluster {
	t.Helper()
	needFUSE(t)
	if os.Getuid() != 0 {
		missing(t, "the manifests mount with --allow-other, which takes root")
	}
	c := &cluster{t: t, app: t.TempDir(), bin: t.TempDir(), claims: map[string]string{"train-data": data, "train-state": t.TempDir()}}
	require.NoError(t, os.Symlink(lsiofs, filepath.Join(c.bin, "lsiofs")))
	require.NoError(t, os.Symlink(python(t), filepath.Join(c.bin, "python3")))
	image, err := os.ReadFile(filepath.Join(kubernetes, "Containerfile"))
	require.NoError(t, err)
	copied := regexp.MustCompile(`(?m)^COPY (\w.*) /app/$`).FindStringSubmatch(string(image))
	require.NotNil(t, copied)
	for _, file := range strings.Fields(copied[1]) {
		from := filepath.Join("../examples", file)
		if info, err := os.Stat(from); err == nil && info.IsDir() {
			from += "/." // COPY takes what is in a directory
		}
		output(t, "cp", "-r", from, c.app)
	}
	return c
}

// pod is a pod that runs.
type pod struct {
	*cluster
	volumes  map[string]string
	sidecars []*exec.Cmd
	main     *exec.Cmd
	out      *serve.Log // of the main container
}

// process makes a process of a container's command.
func (p *pod) process(c container, words, env []string) *exec.Cmd {
	p.t.Helper()
	variables := map[string]string{}
	for _, from := range c.EnvFrom {
		require.Equal(p.t, "run", from.ConfigMapRef.Name)
		maps.Copy(variables, p.run)
	}
	for _, e := range c.Env {
		variables[e.Name] = e.Value
	}
	paths := []string{"/app/", p.app + "/"}
	for _, m := range c.VolumeMounts {
		paths = append(paths, m.MountPath, p.volumes[m.Name])
	}
	replacer := strings.NewReplacer(paths...)
	expanded := make([]string, len(words))
	for i, word := range words {
		for name, value := range variables {
			word = strings.ReplaceAll(word, "$("+name+")", value)
		}
		expanded[i] = replacer.Replace(word)
	}
	if expanded[0] == "/lsiofs" { // the image of that one program
		require.Contains(p.t, c.Image, "/lsiofs:")
		expanded[0] = lsiofs
	}
	path := p.bin + ":" + os.Getenv("PATH")
	program := expanded[0]
	if _, err := os.Stat(filepath.Join(p.bin, program)); err == nil {
		program = filepath.Join(p.bin, program)
	}
	cmd := exec.Command(program, expanded[1:]...)
	cmd.Env = append(environment(filepath.Join(scratch, "tmp")), "PATH="+path)
	for name, value := range variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// words are a container's command line, which an image of lsiofs alone begins.
func (c container) words() []string {
	words := append(append([]string{}, c.Command...), c.Args...)
	if len(c.Command) == 0 && strings.Contains(c.Image, "/lsiofs:") {
		words = append([]string{"/lsiofs"}, words...)
	}
	return words
}

// start starts a pod as a kubelet does: one init container after the other, of a
// sidecar until its startup probe succeeds, then the main container.
func (c *cluster) start(spec podSpec, env ...string) *pod {
	c.t.Helper()
	p := &pod{cluster: c, volumes: map[string]string{}, out: serve.NewLog()}
	for _, v := range spec.Volumes {
		p.volumes[v.Name] = c.claims[v.PersistentVolumeClaim.ClaimName]
		if v.PersistentVolumeClaim.ClaimName == "" {
			p.volumes[v.Name] = c.t.TempDir()
		}
		require.NotEmpty(c.t, p.volumes[v.Name], "volume %s", v.Name)
	}
	c.t.Cleanup(p.kill)
	for _, i := range spec.InitContainers {
		cmd := p.process(i, i.words(), env)
		if i.RestartPolicy != "Always" {
			out, err := cmd.CombinedOutput()
			require.NoError(c.t, err, "%s", out)
			continue
		}
		log := serve.NewLog()
		cmd.Stderr = log
		require.NoError(c.t, cmd.Start())
		p.sidecars = append(p.sidecars, cmd)
		require.Eventually(c.t, func() bool {
			return p.process(i, i.StartupProbe.Exec.Command, env).Run() == nil
		}, clientLimit, 20*time.Millisecond, "%s: %s", i.Name, log)
	}
	require.Len(c.t, spec.Containers, 1)
	p.main = p.process(spec.Containers[0], spec.Containers[0].words(), env)
	p.main.Stdout, p.main.Stderr = p.out, p.out
	require.NoError(c.t, p.main.Start())
	return p
}

// says waits until the main container has written a line.
func (p *pod) says(line string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains("\n"+p.out.String(), "\n"+line+"\n") },
		clientLimit, 5*time.Millisecond, "%q is not written: %s", line, p.out)
}

// end waits for the main container, after a signal where there is one, gives how it
// ended, and stops the sidecars, which leave nothing.
func (p *pod) end(signals ...os.Signal) int {
	p.t.Helper()
	for _, s := range signals {
		require.NoError(p.t, p.main.Process.Signal(s))
	}
	watchdog := time.AfterFunc(clientLimit, func() { p.main.Process.Kill() })
	p.main.Wait() // how it ended is the answer
	watchdog.Stop()
	for _, s := range p.sidecars {
		require.NoError(p.t, s.Process.Signal(syscall.SIGTERM))
		require.NoError(p.t, s.Wait(), "a sidecar that is stopped ends well")
	}
	p.sidecars = nil
	for _, dir := range p.volumes {
		require.Empty(p.t, mountsBelow(dir))
	}
	return p.main.ProcessState.ExitCode()
}

// kill ends what a failed test has left.
func (p *pod) kill() {
	for _, c := range append(p.sidecars, p.main) {
		if c != nil && c.Process != nil && c.ProcessState == nil {
			c.Process.Kill()
			c.Wait()
		}
	}
	for _, dir := range p.volumes {
		for _, point := range mountsBelow(dir) {
			detach(point)
		}
	}
}

func TestExampleKubernetesSidecarMountsForItsPod(t *testing.T) {
	d := labelled(t, 305)
	c := newCluster(t, d.dir)
	p := c.start(manifest(t, kubernetes+"/sidecar.yaml").Spec.podSpec)
	require.Zero(t, p.end(), p.out.String())
	var want strings.Builder
	for w := range 4 {
		for _, file := range []struct{ ext, flag string }{{"ids", "--ids=true"}, {"jsonl", "--ids=false"}, {"offsets", "--offsets"}} {
			bytes := toolOK(t, "cat", d.dir, "--worker", fmt.Sprintf("%d/4", w), file.flag)
			fmt.Fprintf(&want, "%x  %s/mnt/worker-%d.%s\n", md5.Sum(bytes), p.volumes["stream"], w, file.ext)
		}
	}
	require.Equal(t, want.String(), p.out.String())
}

// labelled is a dataset of which each record has a label of its own.
func labelled(t *testing.T, records int) dataset {
	t.Helper()
	d := dataset{name: "labelled", dir: t.TempDir(), ext: ".jsonl"}
	shards := make([]strings.Builder, 5)
	for n := range records {
		fmt.Fprintf(&shards[n%len(shards)], "{\"label\": \"%d\"}\n", n)
	}
	for i := range shards {
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, fmt.Sprintf("%d.jsonl", i)), []byte(shards[i].String()), 0o644))
	}
	return d
}

// begin makes the ConfigMap of one of the README's commands, and runs the job that
// begins its run.
func (c *cluster) begin(command string) {
	c.t.Helper()
	c.run = map[string]string{}
	for _, literal := range regexp.MustCompile(`--from-literal=(\w+)=(\S*)`).FindAllStringSubmatch(command, -1) {
		c.run[literal[1]] = literal[2]
	}
	require.Len(c.t, c.run, 3, command)
	p := c.start(manifest(c.t, kubernetes+"/begin.yaml").Spec.Template.Spec)
	require.Zero(c.t, p.end(), p.out.String())
}

// counted adds up the models that the checkpoints of a run belong to.
func (c *cluster) counted(run string, sum map[string]int) (used []int) {
	c.t.Helper()
	saves := filepath.Join(c.claims["train-state"], run)
	for pod := 0; ; pod++ {
		b, err := os.ReadFile(fmt.Sprintf("%s/checkpoint-%d.json", saves, pod))
		if os.IsNotExist(err) {
			return used
		}
		require.NoError(c.t, err)
		n := last(documentOf(c.t, b).Done).Consumed[pod]
		used = append(used, n)
		b, err = os.ReadFile(fmt.Sprintf("%s/model-%d-%d.json", saves, pod, n))
		require.NoError(c.t, err)
		var model map[string]int
		require.NoError(c.t, json.Unmarshal(b, &model))
		for label, count := range model {
			sum[label] += count
		}
	}
}

func requireEachOnce(t *testing.T, records int, sum map[string]int) {
	t.Helper()
	require.Len(t, sum, records)
	for label, count := range sum {
		require.Equal(t, 1, count, "label %s", label)
	}
}

// TestExampleKubernetesJobTrainsOnEveryRecordOnceWithOtherNumbersOfPods follows the
// README's commands: a run of four pods is stopped in the middle, three go on, and
// then read another epoch.
func TestExampleKubernetesJobTrainsOnEveryRecordOnceWithOtherNumbersOfPods(t *testing.T) {
	const records = 305
	c := newCluster(t, labelled(t, records).dir)
	text, err := os.ReadFile(filepath.Join(kubernetes, "README.md"))
	require.NoError(t, err)
	runs := regexp.MustCompile(`(?m)^kubectl create configmap run .*$`).FindAllString(string(text), -1)
	require.Len(t, runs, 3, "a run, one that goes on, one of another epoch")
	edit := regexp.MustCompile(`sed '([^']+)' examples/kubernetes/train.yaml`).FindStringSubmatch(string(text))
	require.NotNil(t, edit)
	three := filepath.Join(t.TempDir(), "train.yaml")
	require.NoError(t, os.WriteFile(three, output(t, "sed", edit[1], kubernetes+"/train.yaml"), 0o600))

	job := manifest(t, kubernetes+"/train.yaml").Spec
	require.Equal(t, 4, job.Completions)
	c.begin(runs[0])
	start := func(index int, env ...string) *pod {
		t.Helper()
		return c.start(job.Template.Spec, append(env, "JOB_COMPLETION_INDEX="+strconv.Itoa(index))...)
	}
	const patiently = "STEP_SECONDS=86400" // after each step it waits, to be stopped there
	pods := []*pod{start(0, patiently), start(1, patiently), start(2, patiently), start(3)}
	for _, p := range pods[:3] {
		p.says("saved 10")
	}
	require.Equal(t, 143, pods[0].end(syscall.SIGTERM), "stopped: it is not done")
	require.Equal(t, -1, pods[1].end(syscall.SIGKILL))
	require.Equal(t, -1, pods[2].end(syscall.SIGKILL))
	require.Zero(t, pods[3].end(), pods[3].out.String())
	again := start(2, patiently) // the job replaces a pod that has failed
	again.says("saved 20")
	require.Equal(t, 143, again.end(syscall.SIGTERM))

	sum := map[string]int{}
	require.Equal(t, []int{10, 10, 20, records / 4}, c.counted("run-0", sum))
	requireEachOnce(t, 40+records/4, sum)

	job = manifest(t, three).Spec
	require.Equal(t, 3, job.Completions)
	for number, command := range runs[1:] {
		c.begin(command)
		pods = nil
		for index := range job.Completions {
			pods = append(pods, start(index))
		}
		for _, p := range pods {
			require.Zero(t, p.end(), p.out.String())
		}
		if number == 1 {
			sum = map[string]int{} // another epoch
		}
		require.Len(t, c.counted(c.run["RUN"], sum), 3)
		requireEachOnce(t, records, sum)
	}
}
