// Package cluster tests the Kubernetes examples and the CSI driver on a real Kubernetes. It follows
// examples/kubernetes/README.md line by line, kills pods and a node meanwhile, and counts each
// record in the pods' logs; then it tests the rest of the CSI driver. etcd, API server, controller
// manager, scheduler and CoreDNS run on the first of two nodes, kubelet and containerd on both.
// `build` builds what is needed, once for each version.
//
// Nodes are made of namespaces (package hosts). A node's root is an overlay over the machine's, in
// memory: what kubelet and containerd write disappears with the test. There is no registry: podman,
// here, is a program of the test that makes images of static programs and of this machine's Python.
package cluster
