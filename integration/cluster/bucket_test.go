package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/servers"
)

// readsABucket: pods read from an S3 server in the cluster with the keys in their Secret. A pod
// with wrong keys gets the server's answer in its event. A bucket's keys are in no argument, log or
// file.
func (c *cluster) readsABucket() {
	program := filepath.Join(c.dir, "versitygw")
	out, err := exec.Command("cp", servers.Program(c.t, "versitygw"), program).CombinedOutput()
	require.NoError(c.t, err, "%s", out)
	bucket := filepath.Join(c.dir, "buckets", "train")
	require.NoError(c.t, os.MkdirAll(bucket, 0o755))
	servers.WriteObject(c.t, bucket, "a/00.jsonl", []byte("{\"label\": \"in the bucket\"}\n"))
	one := c.nodes[0]
	one.Begin("versitygw", []string{"ROOT_ACCESS_KEY=" + servers.AccessKey, "ROOT_SECRET_KEY=" + servers.SecretKey}, program, "--quiet", "--port", one.ip+":7070", "posix", filepath.Dir(bucket))
	secret := func(name, key string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: train}\nstringData: {AWS_ACCESS_KEY_ID: %q, AWS_SECRET_ACCESS_KEY: %q, AWS_ENDPOINT_URL_S3: \"http://%s:7070\"}\n---\n", name, servers.AccessKey, key, one.ip)
	}
	read := func(name string) string {
		volume := strings.Replace(inline("dataset=s3://train/a", "memory=64MiB"), "readOnly: true", "readOnly: true, nodePublishSecretRef: {name: "+name+"}", 1)
		return pod(name, podSpec(volume, "/pod", "read", "/stream", "1"))
	}
	c.apply(secret("right", servers.SecretKey) + secret("wrong", "topsecret-wrong") + read("right") + read("wrong"))
	c.running("right")
	require.Contains(c.t, c.kubectl("logs", "-n", "train", "right"), "in the bucket")
	events := c.says("wrong", "403 Forbidden", "SignatureDoesNotMatch")
	logs := c.kubectl("logs", "-n", "lsiofs", "daemonset/lsiofs-csi")
	arguments := one.Run("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
	for _, key := range []string{servers.SecretKey, "topsecret-wrong"} {
		require.NotContains(c.t, events, key)
		require.NotContains(c.t, logs, key)
		require.NotContains(c.t, arguments, key)
		left, _ := one.Try(nil, "grep", "-rlF", key, "/var/lib/kubelet/plugins", "/var/cache/lsiofs")
		require.Empty(c.t, left)
	}
	c.kubectl("delete", "pod", "-n", "train", "right", "wrong")
	c.eventually("no server is left", func() bool { return c.servers() == 0 })
}

// says waits for an event of a pod that contains these words, and returns its events.
func (c *cluster) says(pod string, words ...string) (events string) {
	c.t.Helper()
	c.eventually("the event of pod "+pod+" says why", func() bool {
		events, _ = c.try("get", "events", "-n", "train", "--field-selector=reason=FailedMount,involvedObject.name="+pod, "-o", "jsonpath={.items[*].message}")
		for _, w := range words {
			if !strings.Contains(events, w) {
				return false
			}
		}
		return true
	})
	return events
}
