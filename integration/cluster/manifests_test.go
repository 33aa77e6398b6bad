package cluster

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
)

// driver is the driver's manifests, as users apply them, with two directories of the node.
func (c *cluster) driver() string {
	b, err := os.ReadFile("../../examples/kubernetes/driver/lsiofs-csi.yaml")
	require.NoError(c.t, err)
	text := string(b)
	insert := func(at, before, after string) {
		require.Equal(c.t, 1, strings.Count(text, at), at)
		text = strings.Replace(text, at, before+at+after, 1)
	}
	paths := []string{c.dir + "/data", c.dir + "/state"}
	for i, path := range paths {
		insert("            - --health=", fmt.Sprintf("            - --allow-path=%s\n", path), "")
		insert("            - {name: cache, mountPath: /var/cache/lsiofs}\n", "", fmt.Sprintf("            - {name: path-%d, mountPath: %q, readOnly: true}\n", i, path))
		insert("        - name: cache\n", fmt.Sprintf("        - {name: path-%d, hostPath: {path: %q}}\n", i, path), "")
	}
	return text
}

// namespace is where people train, under the strictest standard, with a claim for what they save.
func (c *cluster) namespace() string {
	return `apiVersion: v1
kind: Namespace
metadata: {name: train, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: state}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  storageClassName: ""
  hostPath: {path: "` + c.dir + `/state"}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: state, namespace: train}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ""
  volumeName: state
  resources: {requests: {storage: 1Gi}}
`
}

// podSpec is a pod's under the restricted standard: a command, volumes besides the one that saves
// go to, and variables.
func podSpec(restart, volume string, env []string, command ...string) string {
	for i, e := range env {
		name, value, _ := strings.Cut(e, "=")
		env[i] = fmt.Sprintf("{name: %s, value: %q}", name, value)
	}
	quoted := slices.Clone(command)
	for i := range quoted {
		quoted[i] = fmt.Sprintf("%q", quoted[i])
	}
	volumes, mounts := "{name: state, persistentVolumeClaim: {claimName: state}}", "{name: state, mountPath: /state}"
	if volume != "" {
		volumes, mounts = volumes+", {name: stream, "+volume+"}", mounts+", {name: stream, mountPath: /stream, readOnly: true}"
	}
	return `{restartPolicy: ` + restart + `, terminationGracePeriodSeconds: 2, automountServiceAccountToken: false,
securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}},
containers: [{name: c, image: "localhost/test:1", imagePullPolicy: Never, command: [` + strings.Join(quoted, ", ") + `], env: [` + strings.Join(env, ", ") + `],
securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}, volumeMounts: [` + mounts + `]}],
volumes: [` + volumes + `]}`
}

// inline is an inline volume with attributes, each NAME=VALUE.
func inline(attributes ...string) string {
	for i, a := range attributes {
		name, value, _ := strings.Cut(a, "=")
		attributes[i] = fmt.Sprintf("%q: %q", name, value)
	}
	return "csi: {driver: lsiofs.csi, readOnly: true, volumeAttributes: {" + strings.Join(attributes, ", ") + "}}"
}

func pod(name, spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: train}\nspec: " + spec + "\n---\n"
}

// job is an Indexed Job of so many pods.
func job(name string, pods int, spec string) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: train}
spec:
  completionMode: Indexed
  completions: %d
  parallelism: %d
  backoffLimitPerIndex: 100
  podReplacementPolicy: Failed
  template:
    spec: %s
---
`, name, pods, pods, spec)
}
