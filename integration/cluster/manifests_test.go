package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// driver is the DaemonSet of the driver, with what it needs.
func (c *cluster) driver() string {
	return `apiVersion: v1
kind: Namespace
metadata: {name: lsiofs, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: lsiofs.csi}
spec: {attachRequired: false, podInfoOnMount: true, requiresRepublish: true, fsGroupPolicy: None, volumeLifecycleModes: [Ephemeral, Persistent]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: lsiofs-csi, namespace: lsiofs}
spec:
  selector: {matchLabels: {app: lsiofs-csi}}
  template:
    metadata: {labels: {app: lsiofs-csi}}
    spec:
      hostNetwork: true
      hostPID: true
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 5
      tolerations: [{operator: Exists}]
      containers:
        - name: driver
          image: localhost/test:1
          imagePullPolicy: Never
          command: [/lsiofs-csi, --health=:9809, --allow-path=` + c.dir + `/data, --allow-path=` + c.dir + `/state]
          env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
          securityContext: {privileged: true}
          livenessProbe: {httpGet: {path: /healthz, port: 9809}, periodSeconds: 5}
          volumeMounts:
            - {name: kubelet, mountPath: /var/lib/kubelet, mountPropagation: Bidirectional}
            - {name: cache, mountPath: /var/cache/lsiofs}
            - {name: data, mountPath: "` + c.dir + `/data", readOnly: true}
            - {name: state, mountPath: "` + c.dir + `/state", readOnly: true}
      volumes:
        - {name: kubelet, hostPath: {path: /var/lib/kubelet}}
        - {name: cache, hostPath: {path: /var/cache/lsiofs, type: DirectoryOrCreate}}
        - {name: data, hostPath: {path: "` + c.dir + `/data"}}
        - {name: state, hostPath: {path: "` + c.dir + `/state"}}
`
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
