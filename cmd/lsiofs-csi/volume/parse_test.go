package volume

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAttributesBecomeFlags(t *testing.T) {
	for name, c := range map[string]struct {
		attributes map[string]string
		want       Volume
	}{
		"a directory": {
			map[string]string{"dataset": "/data/train", "workers": "4", "seed": "42", "grow": "true"},
			Volume{Dataset: "/data/train", Args: []string{"--grow=true", "--seed=42", "--workers=4"}, Paths: []string{"/data/train"}},
		},
		"a pattern": {
			map[string]string{"dataset": "/data/**/shard-{000..146}.tar"},
			Volume{Dataset: "/data/**/shard-{000..146}.tar", Paths: []string{"/data"}},
		},
		"a bucket that is written to by what kubelet adds": {
			map[string]string{"dataset": "s3://b/train", "csi.storage.k8s.io/pod.name": "p", "csi.storage.k8s.io/ephemeral": "true"},
			Volume{Dataset: "s3://b/train"},
		},
		"a value that looks like a flag": {
			map[string]string{"dataset": "s3://b/train", "split": "--daemon"},
			Volume{Dataset: "s3://b/train", Args: []string{"--split=--daemon"}},
		},
		"several lines": {
			map[string]string{"mix": "web=70:/data/web\ncode=30:s3://b/code\n\n"},
			Volume{Args: []string{"--mix=web=70:/data/web", "--mix=code=30:s3://b/code"}, Paths: []string{"/data/web"}},
		},
		"arrays below the dataset": {
			map[string]string{"dataset": "/data", "array": "x=x-*.npy\ny=y-*.npy"},
			Volume{Dataset: "/data", Args: []string{"--array=x=x-*.npy", "--array=y=y-*.npy"}, Paths: []string{"/data"}},
		},
		"files beside the dataset": {
			map[string]string{"dataset": "s3://b/x", "resume": "/data/ckpt.json", "run": "/data/runs/1"},
			Volume{Dataset: "s3://b/x", Args: []string{"--resume=/data/ckpt.json", "--run=/data/runs/1"}, Paths: []string{"/data/ckpt.json", "/data/runs/1"}, Directories: []string{"/data/runs/1"}},
		},
		"a pod that restores": {
			map[string]string{"dataset": "s3://b/x", "checkpoint": "write"},
			Volume{Dataset: "s3://b/x", Writable: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(c.attributes, nil, Policy{Never: Never("/var/lib/kubelet")})
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestAllVolumeProblemsAreReportedAtOnce(t *testing.T) {
	_, err := Parse(map[string]string{
		"dataset": "data", "daemon": "true", "colour": "red", "resume": "/data/../etc/passwd", "checkpoint": "yes", "memory": "3GiB",
		"run": "/var/lib/kubelet/pods", "crops": "/", "snapshot": "/var/run/x", "array": "../x", "ca-file": "/elsewhere/ca.pem",
	}, map[string]string{"token": "hidden", "AWS_ACCESS_KEY_ID": "A"}, Policy{Allow: []string{"/data", "/var"}, Never: Never("/var/lib/kubelet"), MemoryLimitBytes: 4 << 30})
	require.Equal(t, strings.TrimSpace(`
attribute array ("../x") must be a pattern inside of the dataset: write it without .. and without / at its beginning
attribute ca-file: "/elsewhere/ca.pem" is in none of the directories that this node's administrator allows (--allow-path of the driver): /data, /var
attribute checkpoint ("yes") must be one of none, write
attribute crops: "/" is in none of the directories that this node's administrator allows (--allow-path of the driver): /data, /var
attribute dataset: "data" must be an absolute path of the node, or a URL where a dataset is named
attribute resume: "/data/../etc/passwd" must not have .. in it: write the path without
attribute run: "/var/lib/kubelet/pods" overlaps /var/lib/kubelet, which no pod may read: name a directory of data
attribute snapshot: "/var/run/x" overlaps /var/run, which no pod may read: name a directory of data
there is no attribute "colour", "daemon" (the driver runs its servers as it sees fit): there are `+strings.Join(Names(), ", ")+`
attribute memory (3GiB) must be at most 2.0 GiB: this node's servers may take 4.0 GiB each, of which --memory is half
the Secret may not have a key "token": it may have AWS_ACCESS_KEY_ID, AWS_DEFAULT_REGION, AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_S3, AWS_REGION, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, LSIOFS_HTTP_TOKEN`), err.Error())
}

func TestPathsOutsideAllowedDirectoriesAreRefused(t *testing.T) {
	p := Policy{Allow: []string{"/data"}, Never: Never()}
	for _, path := range []string{
		"/data/{../../etc,x}/y", "/data/a,..", "/data/..", "data", "", "/database", "/{data,etc}/x", "/dat?", "/data/../etc", "//etc", "/data/{x,..}",
		"ftp://data", `/\data/../etc`,
	} {
		_, err := Parse(map[string]string{"dataset": path}, nil, p)
		require.Error(t, err, path)
	}
	for _, path := range []string{"/data", "/data/", "/data//x", "/data/{a,b}/*.tar", "/data/a..b", "/data/...", "http://x/../y"} {
		_, err := Parse(map[string]string{"dataset": path}, nil, p)
		require.NoError(t, err, path)
	}
	v, err := Parse(map[string]string{"dataset": "/data/l*/x", "run": "/data/l*/x"}, nil, p)
	require.NoError(t, err)
	require.Equal(t, []string{"/data", "/data/l*/x"}, v.Paths, "only a dataset may be a pattern")
	_, err = Parse(map[string]string{"mix": "a=1:/data/a\nb=1:/etc/b"}, nil, p)
	require.ErrorContains(t, err, "/etc/b")
}

func TestVolumesShareServerOnlyWithSameSettingsAndCredentials(t *testing.T) {
	p := Policy{}
	key := func(hash string, attributes, secrets map[string]string) string {
		t.Helper()
		v, err := Parse(attributes, secrets, Policy{})
		require.NoError(t, err)
		return v.Key([]byte(hash), p)
	}
	a := map[string]string{"dataset": "s3://b/x", "seed": "1"}
	secret := map[string]string{"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "B"}
	one := key("k", a, secret)
	require.Regexp(t, `^[0-9a-f]{32}$`, one)
	require.Equal(t, one, key("k", map[string]string{"dataset": "s3://b/x", "seed": "1", "checkpoint": "write", "csi.storage.k8s.io/pod.name": "other"}, secret))
	seen := map[string]bool{one: true}
	for _, other := range []string{
		key("other", a, secret),
		key("k", a, nil),
		key("k", a, map[string]string{"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "C"}),
		key("k", map[string]string{"dataset": "s3://b/x", "seed": "2"}, secret),
		key("k", map[string]string{"dataset": "s3://b/x/--seed=1"}, secret),
		key("k", map[string]string{"dataset": "s3://b/x", "seed": "1", "batch": "1"}, secret),
	} {
		require.False(t, seen[other])
		seen[other] = true
	}
	for _, p = range []Policy{{AllowURLs: []string{"http://127.0.0.1:80"}}, {AllowURLs: []string{"http://127.0.0.1:80", "http://127.0.0.1:81"}}, {Never: []string{"/closed"}}} {
		other := key("k", a, secret)
		require.False(t, seen[other], "a running server keeps its rules: %+v", p)
		seen[other] = true
	}
}

func TestRedactRemovesSecretsAndLeavesTheRest(t *testing.T) {
	v, err := Parse(map[string]string{"dataset": "s3://b/x"}, map[string]string{"AWS_ACCESS_KEY_ID": "AKIDX", "AWS_SECRET_ACCESS_KEY": "s3cr3t", "AWS_REGION": "eu-1"}, Policy{})
	require.NoError(t, err)
	require.Equal(t, "key (AWS_ACCESS_KEY_ID) of eu-1, (AWS_SECRET_ACCESS_KEY)", v.Redact("key AKIDX of eu-1, s3cr3t"))
	v, err = Parse(map[string]string{"dataset": "https://hub/x.tar"}, map[string]string{"LSIOFS_HTTP_TOKEN": "hub hf_1\nlab PRIVATE-TOKEN: glpat\n"}, Policy{})
	require.NoError(t, err)
	require.Equal(t, "hub: (LSIOFS_HTTP_TOKEN), lab: (LSIOFS_HTTP_TOKEN)", v.Redact("hub: hf_1, lab: glpat"))
	b, err := json.Marshal(v.Args)
	require.NoError(t, err)
	require.NotContains(t, string(b), "s3cr3t")
}

func TestMemoryFlagOfServerFitsSmallLimit(t *testing.T) {
	v, err := Parse(map[string]string{"dataset": "s3://b/x"}, nil, Policy{MemoryLimitBytes: 512 << 20})
	require.NoError(t, err)
	require.Equal(t, []string{"--memory=268435456B"}, v.Args)
	v, err = Parse(map[string]string{"dataset": "s3://b/x", "memory": "lots"}, nil, Policy{MemoryLimitBytes: 512 << 20})
	require.NoError(t, err, "mount says what is wrong with it")
	require.Equal(t, []string{"--memory=lots"}, v.Args)
	_, err = Parse(map[string]string{"dataset": "s3://b/x", "seed": strings.Repeat("1", 1<<20)}, nil, Policy{})
	require.ErrorContains(t, err, "at most 16384")
	require.Less(t, len(err.Error()), 500)
}

func TestNoFlagIsBothAttributeAndExcluded(t *testing.T) {
	for name := range leftOut {
		require.NotContains(t, Names(), name)
	}
}
