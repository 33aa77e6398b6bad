// Package driver checks the chart and the manifests of lsiofs' CSI driver against what Kubernetes
// and the driver accept:
//
//	chart/ ──helm's own engine──► objects ──► decoded strictly, and checked        (check_test.go)
//	values.yaml                      │   └──► arguments ──► lsiofs-csi runs them    (render_test.go)
//	                                 └──► lsiofs-csi.yaml, the plain manifests
//
// It only has tests, and is a separate module, so that nothing else depends on helm:
//
//	go test .            # after a change
//	go test . -update    # rewrites lsiofs-csi.yaml
package driver
