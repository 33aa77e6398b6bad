// Package cluster follows examples/kubernetes/README.md on a real Kubernetes, line by line, kills pods and
// a node meanwhile, and counts each record in what pods have logged; then it tries the rest of the CSI
// driver. etcd, API server, controller manager, scheduler and CoreDNS run on the first of two nodes, kubelet
// and containerd on both. `build` builds what is needed, once for each version.
//
// Nodes are made of namespaces (package hosts). A node's root is an overlay over the machine's, in
// memory: what kubelet and containerd write is gone with the test. There is no registry: podman, here, is a
// program of the test that makes images of static programs and of this machine's Python.
package cluster
