package cluster

import (
	"testing"
)

func TestACluster(t *testing.T) {
	c := start(t)
	c.image()
	t.Log(c.kubectl("get", "nodes", "-o", "wide"))
	c.apply(`apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  restartPolicy: Never
  containers: [{name: c, image: "localhost/test:1", imagePullPolicy: Never, command: [/pod, pause]}]
`)
	c.eventually("a pod runs", func() bool {
		out, _ := c.try("get", "pod", "plain", "-o", "jsonpath={.status.phase}")
		return out == "Running"
	})
	c.kubectl("delete", "pod", "plain", "--grace-period=1")
}
