// Package cluster runs the CSI driver and the Indexed Job of examples/kubernetes on a real Kubernetes:
// etcd, API server, controller manager, scheduler, kubelet and containerd, on one node that is made of
// namespaces (package hosts). `build` builds what it needs, once for each version.
//
// The node's root is an overlay over the machine's, in memory: what kubelet and containerd write is gone
// with the test. Images are made here, of static programs: there is no registry.
package cluster
