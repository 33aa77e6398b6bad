package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ownMemory is what lsiofs may use on top of --memory.
var ownMemory = resource.MustParse("256Mi")

// check looks for mistakes that decode but do not work, and reports all of them.
func check(o runtime.Object) error {
	switch o := o.(type) {
	case *corev1.Pod:
		return errors.Join(checkName(o.Name), checkPod(o.Spec))
	case *batchv1.Job:
		return errors.Join(checkName(o.Name), checkJob(o.Spec), checkPod(o.Spec.Template.Spec))
	case *corev1.PersistentVolume:
		return errors.Join(checkName(o.Name), checkVolume(o.Spec))
	case *corev1.PersistentVolumeClaim:
		return errors.Join(checkName(o.Name), checkName(o.Spec.VolumeName))
	case *corev1.Service:
		return checkName(o.Name)
	}
	return fmt.Errorf("%T is no kind that the examples use", o)
}

func checkName(name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("name %q: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

// checkJob checks a job; if it is an indexed one, also that each file of the mount has one pod.
func checkJob(j batchv1.JobSpec) error {
	var problems []error
	if p := j.Template.Spec.RestartPolicy; p != corev1.RestartPolicyNever && p != corev1.RestartPolicyOnFailure {
		problems = append(problems, fmt.Errorf("restartPolicy %q: a job takes Never or OnFailure", p))
	}
	if j.CompletionMode == nil || *j.CompletionMode != batchv1.IndexedCompletion {
		return errors.Join(problems...)
	}
	if j.Completions == nil || j.Parallelism == nil || *j.Completions != *j.Parallelism {
		problems = append(problems, errors.New("completions and parallelism differ: the pods of a run work at the same time"))
		return errors.Join(problems...)
	}
	pods := strconv.Itoa(int(*j.Completions))
	for _, c := range containers(j.Template.Spec) {
		for _, e := range c.Env {
			if (e.Name == "PARTS" || e.Name == "WORLD_SIZE") && e.Value != pods {
				problems = append(problems, fmt.Errorf("container %s: %s is %s, completions %s", c.Name, e.Name, e.Value, pods))
			}
		}
	}
	for _, v := range j.Template.Spec.Volumes {
		if v.CSI == nil {
			continue
		}
		if workers, given := v.CSI.VolumeAttributes["workers"]; given && workers != pods {
			problems = append(problems, fmt.Errorf("volume %s: workers is %s, completions %s", v.Name, workers, pods))
		}
	}
	return errors.Join(problems...)
}

// checkVolume checks a volume that is made before its claim.
func checkVolume(v corev1.PersistentVolumeSpec) error {
	switch {
	case v.ClaimRef == nil || v.StorageClassName != "":
		return errors.New("anybody's claim may get it: name one in claimRef, and storageClassName: \"\"")
	case v.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		return errors.New("what is in it goes with its claim: persistentVolumeReclaimPolicy: Retain")
	}
	return nil
}

// containers returns all containers of a pod, in the order in which they start.
func containers(p corev1.PodSpec) []corev1.Container {
	return slices.Concat(p.InitContainers, p.Containers)
}

func checkPod(p corev1.PodSpec) error {
	var problems []error
	unused := map[string]bool{}
	for _, v := range p.Volumes {
		problems = append(problems, checkName(v.Name))
		unused[v.Name] = true
	}
	made, seen := map[string]bool{}, map[string]bool{} // volumes in which mounts are made, and which other containers see
	names := map[string]bool{}
	for _, c := range containers(p) {
		problems = append(problems, checkName(c.Name), checkSidecar(c))
		if names[c.Name] {
			problems = append(problems, fmt.Errorf("two containers are named %s", c.Name))
		}
		names[c.Name] = true
		paths := map[string]bool{}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(p.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
				problems = append(problems, fmt.Errorf("container %s: there is no volume %s", c.Name, m.Name))
			}
			delete(unused, m.Name)
			if !path.IsAbs(m.MountPath) || paths[m.MountPath] {
				problems = append(problems, fmt.Errorf("container %s: mountPath %q is relative, or there twice", c.Name, m.MountPath))
			}
			paths[m.MountPath] = true
			switch propagation := m.MountPropagation; {
			case propagation == nil:
			case *propagation == corev1.MountPropagationBidirectional:
				made[m.Name] = true
				if !privileged(c) {
					problems = append(problems, fmt.Errorf("container %s: Bidirectional takes privileged: true", c.Name))
				}
			case *propagation == corev1.MountPropagationHostToContainer:
				seen[m.Name] = true
				if privileged(c) {
					problems = append(problems, fmt.Errorf("container %s reads, and needs no privilege", c.Name))
				}
			}
		}
	}
	for name := range unused {
		problems = append(problems, fmt.Errorf("volume %s is mounted nowhere", name))
	}
	for _, v := range p.Volumes {
		if made[v.Name] != seen[v.Name] {
			problems = append(problems, fmt.Errorf("volume %s: where one container makes mounts (Bidirectional), another has to see them (HostToContainer)", v.Name))
		}
	}
	return errors.Join(problems...)
}

func privileged(c corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// checkSidecar checks a container that mounts.
func checkSidecar(c corev1.Container) error {
	if len(c.Args) == 0 || c.Args[0] != "mount" {
		return nil
	}
	var problems []error
	if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		problems = append(problems, fmt.Errorf("container %s mounts, and is no sidecar: restartPolicy: Always makes it one", c.Name))
	}
	if c.StartupProbe == nil {
		problems = append(problems, fmt.Errorf("container %s has no startupProbe: what reads the mount would start before it", c.Name))
	}
	if _, given := flag(c, "--daemon"); given {
		problems = append(problems, fmt.Errorf("container %s ends when lsiofs goes to the background: no --daemon", c.Name))
	}
	value, given := flag(c, "--memory")
	if !given {
		return errors.Join(append(problems, fmt.Errorf("container %s: say --memory, which its limit goes by", c.Name))...)
	}
	need, err := resource.ParseQuantity(strings.TrimSuffix(value, "B"))
	if err != nil {
		return errors.Join(append(problems, fmt.Errorf("container %s: --memory %s: %w", c.Name, value, err))...)
	}
	need.Add(ownMemory)
	if limit := c.Resources.Limits.Memory(); limit.Cmp(need) < 0 {
		problems = append(problems, fmt.Errorf("container %s: the memory limit is %s, and --memory %s needs %s", c.Name, limit, value, &need))
	}
	return errors.Join(problems...)
}

// flag returns the value of a flag in the form "--flag value".
func flag(c corev1.Container, name string) (value string, given bool) {
	i := slices.Index(c.Args, name)
	if i < 0 {
		return "", false
	}
	if i+1 < len(c.Args) {
		value = c.Args[i+1]
	}
	return value, true
}
