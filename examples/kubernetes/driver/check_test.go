package driver

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// driverName is the name of the driver in volumes, and in its registration with kubelet.
const driverName = "lsiofs.csi"

func daemonSet(t *testing.T, objects []runtime.Object) *appsv1.DaemonSet {
	t.Helper()
	i := slices.IndexFunc(objects, func(o runtime.Object) bool { _, is := o.(*appsv1.DaemonSet); return is })
	require.GreaterOrEqual(t, i, 0)
	return objects[i].(*appsv1.DaemonSet)
}

// check looks for mistakes that decode but do not work, and reports all of them.
func check(objects []runtime.Object) error {
	var problems []error
	problem := func(format string, a ...any) { problems = append(problems, fmt.Errorf(format, a...)) }
	var account *corev1.ServiceAccount
	drivers := 0
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Namespace:
			if o.Name != "lsiofs" || o.Labels[api.EnforceLevelLabel] != "privileged" {
				problem("namespace %s, label %s: the driver's pods are not let in", o.Name, api.EnforceLevelLabel)
			}
		case *corev1.ServiceAccount:
			account = o
			if o.AutomountServiceAccountToken == nil || *o.AutomountServiceAccountToken {
				problem("the service account gives a token, which nobody needs")
			}
		case *storagev1.CSIDriver:
			drivers++
			problems = append(problems, checkDriver(o))
		case *appsv1.DaemonSet:
			problems = append(problems, checkDaemonSet(o, account))
		default:
			problem("%T is no kind that the chart needs", o)
		}
	}
	if drivers != 1 {
		problem("there are %d CSIDrivers", drivers)
	}
	return errors.Join(problems...)
}

func is(b *bool, value bool) bool { return b != nil && *b == value }

func checkDriver(d *storagev1.CSIDriver) error {
	switch {
	case d.Name != driverName:
		return fmt.Errorf("the CSIDriver is named %s: volumes say %s", d.Name, driverName)
	case !is(d.Spec.AttachRequired, false):
		return errors.New("attachRequired: nobody attaches, and pods would wait for ever")
	case !is(d.Spec.PodInfoOnMount, true):
		return errors.New("podInfoOnMount: the driver knows inline volumes by it")
	case !is(d.Spec.RequiresRepublish, true):
		return errors.New("requiresRepublish: servers with a Secret would stay dead")
	case d.Spec.FSGroupPolicy == nil || *d.Spec.FSGroupPolicy != storagev1.NoneFSGroupPolicy:
		return errors.New("fsGroupPolicy: kubelet would change the owner of files that are only read")
	case !slices.Contains(d.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral) ||
		!slices.Contains(d.Spec.VolumeLifecycleModes, storagev1.VolumeLifecyclePersistent):
		return errors.New("volumeLifecycleModes: inline volumes and claims are both served")
	}
	return nil
}

func checkDaemonSet(d *appsv1.DaemonSet, account *corev1.ServiceAccount) error {
	var problems []error
	problem := func(format string, a ...any) { problems = append(problems, fmt.Errorf(format, a...)) }
	spec := d.Spec.Template.Spec
	if d.Namespace != "lsiofs" || account == nil || account.Namespace != d.Namespace || spec.ServiceAccountName != account.Name {
		problem("the service account is not there, or in another namespace")
	}
	if len(d.Spec.Selector.MatchLabels) == 0 || !labels.SelectorFromSet(d.Spec.Selector.MatchLabels).Matches(labels.Set(d.Spec.Template.Labels)) {
		problem("the selector does not find the pods")
	}
	if !is(spec.AutomountServiceAccountToken, false) {
		problem("the pods have a token, which nobody needs")
	}
	if !spec.HostPID {
		problem("hostPID: a server does not see its readers end")
	}
	if len(spec.Containers) != 1 || len(spec.InitContainers) != 0 {
		problem("%d containers: there is one", len(spec.Containers)+len(spec.InitContainers))
		return errors.Join(problems...)
	}
	c := spec.Containers[0]
	if c.SecurityContext == nil || !is(c.SecurityContext.Privileged, true) {
		problem("privileged: Bidirectional and mount(2) take it")
	}
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.Name == "NODE_NAME" && e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "spec.nodeName"
	}) {
		problem("NODE_NAME is not the node's name")
	}
	problems = append(problems, checkMounts(spec, c), checkPorts(c))
	return errors.Join(problems...)
}

// arguments returns the values of a flag in the form --name=value.
func arguments(c corev1.Container, name string) []string {
	var values []string
	for _, a := range c.Args {
		if value, is := strings.CutPrefix(a, "--"+name+"="); is {
			values = append(values, value)
		}
	}
	return values
}

func argument(c corev1.Container, name string) string {
	return strings.Join(arguments(c, name), " and ")
}

// checkMounts checks what the container sees of the node.
func checkMounts(spec corev1.PodSpec, c corev1.Container) error {
	var problems []error
	problem := func(format string, a ...any) { problems = append(problems, fmt.Errorf(format, a...)) }
	volumes := map[string]corev1.Volume{}
	for _, v := range spec.Volumes {
		if _, twice := volumes[v.Name]; twice {
			problem("two volumes are named %s", v.Name)
		}
		volumes[v.Name] = v
	}
	kubelet, cache := argument(c, "kubelet"), argument(c, "cache")
	paths := map[string]corev1.VolumeMount{}
	for _, m := range c.VolumeMounts {
		v, there := volumes[m.Name]
		delete(volumes, m.Name)
		if _, twice := paths[m.MountPath]; twice || !there || !path.IsAbs(m.MountPath) {
			problem("mount %s at %s: there is no such volume, or the path is relative or there twice", m.Name, m.MountPath)
		}
		paths[m.MountPath] = m
		if v.HostPath != nil && v.HostPath.Path != m.MountPath {
			problem("mount %s: %s of the node is %s in the container: pods and kubelet mean the node's", m.Name, v.HostPath.Path, m.MountPath)
		}
		propagation := corev1.MountPropagationNone
		if m.MountPropagation != nil {
			propagation = *m.MountPropagation
		}
		switch {
		case m.MountPath == kubelet:
			if propagation != corev1.MountPropagationBidirectional || m.ReadOnly {
				problem("%s: pods see no mount of the driver", kubelet)
			}
		case m.MountPath == cache:
			if m.ReadOnly {
				problem("%s: the cache is read-only", cache)
			}
		case !slices.Contains(arguments(c, "allow-path"), m.MountPath):
			problem("%s is mounted, and no pod may name it", m.MountPath)
		case !m.ReadOnly && m.MountPath != "/runs":
			problem("%s: data is mounted to be written", m.MountPath)
		case propagation != corev1.MountPropagationHostToContainer:
			problem("%s: what the node mounts below it later is not seen", m.MountPath)
		}
	}
	for name := range volumes {
		problem("volume %s is mounted nowhere", name)
	}
	for name, dir := range map[string]string{"kubelet": kubelet, "cache": cache} {
		if _, there := paths[dir]; !there {
			problem("--%s=%s is not mounted", name, dir)
		}
	}
	// Registration and calls use sockets that kubelet sees, and mounts are made at targets below
	// the same volume.
	for name, dir := range map[string]string{
		"endpoint": "unix://" + kubelet + "/plugins/" + driverName + "/csi.sock", "registration": kubelet + "/plugins_registry", "state": kubelet + "/plugins/" + driverName,
	} {
		if argument(c, name) != dir {
			problem("--%s=%s: kubelet expects %s", name, argument(c, name), dir)
		}
	}
	if len(arguments(c, "allow-path")) == 0 {
		problem("no --allow-path: pods may name whatever the container sees")
	}
	return errors.Join(problems...)
}

// checkPorts checks that probes and Prometheus connect to the ports where the driver listens.
func checkPorts(c corev1.Container) error {
	var problems []error
	ports := map[string]string{}
	for _, p := range c.Ports {
		ports[p.Name] = fmt.Sprintf(":%d", p.ContainerPort)
	}
	for name, flag := range map[string]string{"health": "health", "metrics": "metrics"} {
		if ports[name] != argument(c, flag) {
			problems = append(problems, fmt.Errorf("port %s is %q, and the driver listens on %q", name, ports[name], argument(c, flag)))
		}
	}
	for name, p := range map[string]*corev1.Probe{"readinessProbe": c.ReadinessProbe, "livenessProbe": c.LivenessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != "/healthz" || p.HTTPGet.Port != intstr.FromString("health") {
			problems = append(problems, fmt.Errorf("%s does not ask /healthz of port health", name))
		}
	}
	return errors.Join(problems...)
}

func TestMistakesAreFound(t *testing.T) {
	manifests, err := render(t, everything)
	require.NoError(t, err)
	for _, c := range []struct{ mistake, old, new, why string }{
		{"a field that does not exist", "hostPID:", "hostPid:", "unknown field"},
		{"a field twice", "attachRequired: false", "attachRequired: false\n  attachRequired: false", "already set"},
		{"a quantity that is none", "memory: 16Gi", "memory: 16GiB", "quantities must match"},
		{"another driver's name", "name: lsiofs.csi\n", "name: csi.lsiofs\n", "volumes say lsiofs.csi"},
		{"waiting to be attached", "attachRequired: false", "attachRequired: true", "nobody attaches"},
		{"no pod's information", "podInfoOnMount: true", "podInfoOnMount: false", "knows inline volumes"},
		{"no publishing again", "requiresRepublish: true", "requiresRepublish: false", "stay dead"},
		{"owners that change", "fsGroupPolicy: None", "fsGroupPolicy: File", "change the owner"},
		{"claims only", "[Persistent, Ephemeral]", "[Persistent]", "inline volumes and claims"},
		{"a strict namespace", "enforce: privileged", "enforce: restricted", "not let in"},
		{"a token", "automountServiceAccountToken: false", "automountServiceAccountToken: true", "which nobody needs"},
		{"another account", "serviceAccountName: lsiofs-csi", "serviceAccountName: default", "service account is not there"},
		{"pods that are not found", "      labels:\n        app.kubernetes.io/name: lsiofs-csi", "      labels:\n        app.kubernetes.io/name: other", "does not find"},
		{"no privilege", "privileged: true", "privileged: false", "Bidirectional and mount(2)"},
		{"processes of its own", "hostPID: true", "hostPID: false", "readers end"},
		{"a node without a name", "spec.nodeName", "metadata.name", "NODE_NAME"},
		{"mounts that stay inside", "mountPropagation: Bidirectional", "mountPropagation: HostToContainer", "no mount of the driver"},
		{"a volume that does not exist", "{name: cache, mountPath", "{name: cach, mountPath", "no such volume"},
		{"a cache in the container", "- --cache=/fast/lsiofs", "- --cache=/cache", "--cache=/cache is not mounted"},
		{"a dataset elsewhere", "hostPath: {path: /data,", "hostPath: {path: /datasets,", "the node's"},
		{"a dataset that is written", "mountPath: /data, readOnly: true", "mountPath: /data, readOnly: false", "to be written"},
		{"a dataset that nobody may name", "- --allow-path=/data\n", "- --allow-path=/dat\n", "no pod may name it"},
		{"a socket that kubelet does not see", "--endpoint=unix:///var/lib/k0s/", "--endpoint=unix:///var/lib/", "kubelet expects"},
		{"a probe of another port", "{name: health, containerPort: 9000}", "{name: health, containerPort: 9002}", "listens on"},
		{"a probe of another path", "livenessProbe:\n            httpGet: {path: /healthz", "livenessProbe:\n            httpGet: {path: /", "livenessProbe does not ask"},
	} {
		t.Run(c.mistake, func(t *testing.T) {
			require.Contains(t, manifests, c.old)
			objects, err := decode(strings.Replace(manifests, c.old, c.new, 1))
			if err == nil {
				err = check(objects)
			}
			require.ErrorContains(t, err, c.why)
		})
	}
}

// podSecurity returns the objections of a level of the pod security standards to a pod.
func podSecurity(t *testing.T, level api.Level, o *corev1.PodSpec) string {
	t.Helper()
	e, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	require.NoError(t, err)
	r := policy.AggregateCheckResults(e.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()}, &metav1.ObjectMeta{}, o))
	return r.ForbiddenDetail()
}

func TestOnlyDriverIsPrivileged(t *testing.T) {
	b, err := os.ReadFile("pod.yaml")
	require.NoError(t, err)
	objects, err := decode(string(b))
	require.NoError(t, err)
	require.Len(t, objects, 1)
	pod := objects[0].(*corev1.Pod)
	require.Empty(t, podSecurity(t, api.LevelRestricted, &pod.Spec))
	require.Equal(t, driverName, pod.Spec.Volumes[0].CSI.Driver)
	require.Equal(t, pod.Spec.Volumes[0].Name, pod.Spec.Containers[0].VolumeMounts[0].Name)

	require.Contains(t, podSecurity(t, api.LevelBaseline, &daemonSet(t, objectsOf(t, "")).Spec.Template.Spec), "privileged")
}

func TestClaimMatchesItsVolumeAndPod(t *testing.T) {
	var objects []runtime.Object
	for _, path := range []string{"claim.yaml", "pod.yaml"} {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		of, err := decode(string(b))
		require.NoError(t, err)
		objects = append(objects, of...)
	}
	require.Len(t, objects, 3)
	v, c, pod := objects[0].(*corev1.PersistentVolume), objects[1].(*corev1.PersistentVolumeClaim), objects[2].(*corev1.Pod)
	require.Equal(t, v.Name, c.Spec.VolumeName)
	require.Equal(t, [2]string{c.Namespace, c.Name}, [2]string{v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name})
	require.Equal(t, v.Spec.AccessModes, c.Spec.AccessModes)
	require.NotNil(t, c.Spec.StorageClassName)
	require.Empty(t, *c.Spec.StorageClassName, "else a cluster's default class makes another volume")
	require.Equal(t, driverName, v.Spec.CSI.Driver)
	require.Equal(t, pod.Spec.Volumes[0].CSI.VolumeAttributes, v.Spec.CSI.VolumeAttributes)
}
