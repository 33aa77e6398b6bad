package driver

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write lsiofs-csi.yaml anew")

// plain are the values of the plain manifests, which the chart renders.
const plain = "namespace: {create: true}"

// everything sets every value.
const everything = `
image: registry.example/lsiofs-csi:2
imagePullPolicy: Always
imagePullSecrets: [{name: registry-key}]
namespace: {create: true}
datasets:
  - path: /data
  - {path: /nas, volume: {nfs: {server: nas.example, path: /train}}}
  - {path: /runs, writable: true}
allowUrls: ["http://127.0.0.1:9000", https://minio.node.example]
cache: {path: /fast/lsiofs, size: 80%, reserve: 20GiB}
serverMemoryLimit: 2GiB
resources: {limits: {memory: 16Gi}}
kubeletDir: /var/lib/k0s/kubelet
updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}
nodeSelector: {pool: gpu}
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: gpu, operator: Exists}]}]}}}
tolerations: [{key: gpu, operator: Exists}]
priorityClassName: training
hostNetwork: true
healthPort: 9000
metrics: {port: 9001, annotations: {scraped: "yes"}}
log: {level: debug, format: json}
env: [{name: HTTPS_PROXY, value: "http://proxy.example:3128"}]
serviceAccount: {annotations: {role: reader}}
`

// render renders the chart like `helm template lsiofs-csi chart --namespace lsiofs`.
func render(t *testing.T, values string) (string, error) {
	t.Helper()
	given, err := chartutil.ReadValues([]byte(values))
	require.NoError(t, err, values)
	c, err := loader.Load("chart")
	require.NoError(t, err)
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "lsiofs-csi", Namespace: "lsiofs", Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return "", err
	}
	require.Contains(t, files["lsiofs-csi/templates/NOTES.txt"], "driver: lsiofs.csi")
	delete(files, "lsiofs-csi/templates/NOTES.txt")
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	require.Empty(t, hooks)
	var b strings.Builder
	for _, m := range manifests {
		b.WriteString("---\n" + strings.TrimSpace(m.Content) + "\n")
	}
	return b.String(), err
}

// decode returns the objects of manifests that an API server with strict validation would accept.
func decode(manifests string) ([]runtime.Object, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), storagev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := k8syaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests)))
	var objects []runtime.Object
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		o, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}

func objectsOf(t *testing.T, values string) []runtime.Object {
	t.Helper()
	manifests, err := render(t, values)
	require.NoError(t, err)
	objects, err := decode(manifests)
	require.NoError(t, err, manifests)
	return objects
}

func TestPlainManifestsMatchRenderedChart(t *testing.T) {
	manifests, err := render(t, plain)
	require.NoError(t, err)
	const path = "lsiofs-csi.yaml"
	manifests = "# The driver, for `kubectl apply -f`. Rendered from chart/ (`go test . -update`): change it there, or here\n# with a kustomization of yours.\n" + manifests
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(manifests), 0o644))
	}
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(b), manifests, "go test . -update writes it anew")
}

func TestChartPassesLint(t *testing.T) {
	for _, values := range []string{"", plain, everything} {
		given, err := chartutil.ReadValues([]byte(values))
		require.NoError(t, err)
		for _, m := range lint.All("chart", given, "lsiofs", true).Messages {
			require.Less(t, m.Severity, support.WarningSev, "%s", m)
		}
	}
}

func TestRenderedChartIsValid(t *testing.T) {
	for name, values := range map[string]string{"no values": "", "plain": plain, "everything": everything} {
		t.Run(name, func(t *testing.T) { require.NoError(t, check(objectsOf(t, values))) })
	}
}

// leaves returns the names of all values. A list, or a value that Kubernetes defines, counts as
// one.
func leaves(prefix string, v map[string]any) []string {
	var names []string
	for name, value := range v {
		if below, is := value.(map[string]any); is && len(below) > 0 && !slices.Contains([]string{"resources", "updateStrategy", "nodeSelector", "affinity"}, name) && name != "annotations" {
			names = append(names, leaves(prefix+name+".", below)...)
			continue
		}
		names = append(names, prefix+name)
	}
	return names
}

func TestEveryValueChangesRenderedChart(t *testing.T) {
	defaults, err := chartutil.ReadValuesFile("chart/values.yaml")
	require.NoError(t, err)
	all, err := chartutil.ReadValues([]byte(everything))
	require.NoError(t, err)
	names := leaves("", defaults)
	require.ElementsMatch(t, names, leaves("", all), "the test says something to every value that there is")
	// Annotations of metrics need a port.
	with, err := render(t, "metrics: {port: 9001}")
	require.NoError(t, err)
	without, err := render(t, "")
	require.NoError(t, err)
	for _, name := range names {
		path := strings.Split(name, ".")
		var value any = map[string]any(all)
		for _, p := range path {
			value = value.(map[string]any)[p]
		}
		base := without
		if name == "metrics.annotations" {
			base, value = with, map[string]any{"annotations": value, "port": 9001}
			path = path[:1]
		}
		for _, p := range slices.Backward(path) {
			value = map[string]any{p: value}
		}
		b, err := yaml.Marshal(value)
		require.NoError(t, err)
		manifests, err := render(t, string(b))
		require.NoError(t, err, name)
		require.NotEqual(t, base, manifests, "%s changes nothing", name)
	}
}

func TestInvalidValuesAreRefusedByName(t *testing.T) {
	for values, why := range map[string]string{
		"imag: x":                                    "imag",
		"cache: {dir: /x}":                           "dir",
		"cache: {path: relative}":                    "cache/path",
		"cache: {size: much}":                        "cache/size",
		"serverMemoryLimit: plenty":                  "serverMemoryLimit",
		"kubeletDir: var/lib/kubelet":                "kubeletDir",
		"datasets: [/data]":                          "datasets/0",
		"datasets: [{volume: {emptyDir: {}}}]":       "path",
		`datasets: [{path: "/data/*"}]`:              "datasets/0/path",
		"datasets: [{path: /data, readonly: true}]":  "readonly",
		`allowUrls: ["127.0.0.1:80"]`:                "allowUrls/0",
		"updateStrategy: {type: Recreate}":           "updateStrategy/type",
		"healthPort: 0":                              "healthPort",
		"metrics: {port: 65536}":                     "metrics/port",
		"metrics: {annotations: {scrape: true}}":     "metrics/annotations",
		"log: {level: loud}":                         "log/level",
		"env: [{name: NODE_NAME, value: elsewhere}]": "env/0/name",
		`namespace: {create: "no"}`:                  "namespace/create",
	} {
		_, err := render(t, values)
		require.ErrorContains(t, err, why, values)
	}
}

// TestDriverAcceptsChartArguments runs the driver with its container's arguments, as far as
// --version allows.
func TestDriverAcceptsChartArguments(t *testing.T) {
	program := t.TempDir() + "/lsiofs-csi"
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, ".")
	build.Dir = "../../../cmd/lsiofs-csi"
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, values := range []string{"", everything} {
		c := daemonSet(t, objectsOf(t, values)).Spec.Template.Spec.Containers[0]
		require.Equal(t, []string{"/lsiofs-csi"}, c.Command)
		out, err := exec.CommandContext(t.Context(), program, append(slices.Clone(c.Args), "--version")...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	out, err = exec.CommandContext(t.Context(), program, "--cache-siz=auto", "--version").CombinedOutput()
	require.Error(t, err, "%s", out)

	// By default, the chart passes the driver's own defaults.
	help, err := exec.CommandContext(t.Context(), program, "--help").CombinedOutput()
	require.NoError(t, err)
	args := daemonSet(t, objectsOf(t, "")).Spec.Template.Spec.Containers[0].Args
	for _, name := range []string{"endpoint", "registration", "kubelet", "state", "cache", "cache-size", "cache-reserve", "log-level", "log-format"} {
		i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--"+name+"=") })
		require.GreaterOrEqual(t, i, 0, name)
		_, value, _ := strings.Cut(args[i], "=")
		_, about, found := strings.Cut(string(help), "\n  -"+name+" ")
		require.True(t, found, name)
		about, _, _ = strings.Cut(about, "\n  -")
		require.Contains(t, about, `(default "`+value+`")`, name)
	}
}
