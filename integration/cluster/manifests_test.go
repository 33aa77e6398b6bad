package cluster

import (
	"fmt"
	"strings"
)

// namespace returns the namespace of the test's own pods, which has the strictest standard.
func (c *cluster) namespace() string {
	return "apiVersion: v1\nkind: Namespace\nmetadata: {name: train, labels: {pod-security.kubernetes.io/enforce: restricted}}\n"
}

// podSpec returns the spec of a pod under the restricted standard, with a command and a volume.
func podSpec(volume string, command ...string) string {
	for i := range command {
		command[i] = fmt.Sprintf("%q", command[i])
	}
	return `{restartPolicy: Always, terminationGracePeriodSeconds: 2, automountServiceAccountToken: false,
securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}},
containers: [{name: c, image: "localhost/test:1", imagePullPolicy: Never, command: [` + strings.Join(command, ", ") + `],
securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}, volumeMounts: [{name: stream, mountPath: /stream, readOnly: true}]}],
volumes: [{name: stream, ` + volume + `}]}`
}

// inline returns an inline volume with attributes, each NAME=VALUE.
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
