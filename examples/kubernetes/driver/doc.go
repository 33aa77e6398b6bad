// Package driver holds the chart and the manifests of lsiofs' CSI driver to what Kubernetes and the
// driver take:
//
//	chart/ ──helm's own engine──► objects ──► decoded strictly, and looked at      (check_test.go)
//	values.yaml                      │   └──► arguments ──► lsiofs-csi takes them   (render_test.go)
//	                                 └──► lsiofs-csi.yaml, the plain manifests
//
// It has tests alone, and is a module of its own, so that nothing else depends on helm:
//
//	go test .            # after a change
//	go test . -update    # writes lsiofs-csi.yaml anew
package driver
