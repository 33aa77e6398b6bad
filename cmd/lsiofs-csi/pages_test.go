package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// get fetches a page from a unix socket.
func (d *driver) get(socket, path string) (int, string) {
	d.t.Helper()
	d.until(func() bool { // it appears after CSI's socket, for which start waits
		c, err := net.Dial("unix", d.path(socket))
		return err == nil && c.Close() == nil
	})
	c := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", d.path(socket))
	}}}
	r, err := c.Get("http://driver" + path)
	require.NoError(d.t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(d.t, err)
	return r.StatusCode, string(text)
}

func TestPageHasMetricsOfAllServersAndShowsWhichRespond(t *testing.T) {
	d, data := startDriver(t), dataset(t)
	a, b := pod{name: "a", attributes: map[string]string{"dataset": data}}, pod{name: "b", attributes: map[string]string{"dataset": data, "seed": "2"}}
	require.NoError(t, d.publish(a))
	require.NoError(t, d.publish(b))
	code, text := d.get("metrics.sock", "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Len(t, regexp.MustCompile(`(?m)^lsiofs_records\{server="[0-9a-f]{32}"\} 300$`).FindAllString(text, -1), 2)
	require.Equal(t, 1, strings.Count(text, "# TYPE lsiofs_records gauge"))
	require.Regexp(t, `lsiofs_csi_volume_info\{server="[0-9a-f]{32}",volume="csi-a",namespace="",pod="a"\} 1`, text)
	require.Equal(t, 2, strings.Count(text, "} 1\n")-strings.Count(text, "_info{"))
	if promtool, err := exec.LookPath("promtool"); err == nil {
		check := exec.Command(promtool, "check", "metrics")
		check.Stdin = strings.NewReader(text)
		out, err := check.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}

	// One server is stopped and the other has died, but the page is still served.
	servers := d.servers()
	require.NoError(t, syscall.Kill(servers[0], syscall.SIGKILL))
	require.NoError(t, syscall.Kill(servers[1], syscall.SIGSTOP))
	code, text = d.get("metrics.sock", "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Len(t, regexp.MustCompile(`lsiofs_csi_server_up\{server="\w+"\} 0`).FindAllString(text, -1), 2)
	require.NoError(t, syscall.Kill(servers[1], syscall.SIGCONT))
	d.unpublish(a)
	d.unpublish(b)
	d.requireNothingLeft()
}

func TestLivenessProbeChecksDriver(t *testing.T) {
	d := startDriver(t)
	code, text := d.get("health.sock", "/healthz")
	require.Equal(t, http.StatusOK, code, text)
	require.NoError(t, os.Remove(d.path("csi.sock"))) // now it can't be reached
	code, _ = d.get("health.sock", "/healthz")
	require.Equal(t, http.StatusServiceUnavailable, code)
}

func TestDriverRegistersWithKubelet(t *testing.T) {
	d := startDriver(t)
	d.until(func() bool { _, err := os.Stat(d.path("registration", "lsiofs.csi-reg.sock")); return err == nil })
	c, err := grpc.NewClient("unix://"+d.path("registration", "lsiofs.csi-reg.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer c.Close()
	kubelet := registration.NewRegistrationClient(c)
	// The socket's file exists a moment before the driver listens: kubelet tries again, too.
	info, err := kubelet.GetInfo(t.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	require.Equal(t, []string{"CSIPlugin", "lsiofs.csi", d.path("csi.sock"), "1.0.0"}, []string{info.GetType(), info.GetName(), info.GetEndpoint(), strings.Join(info.GetSupportedVersions(), " ")})
	_, err = kubelet.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{Error: "no room"})
	require.NoError(t, err)
	d.until(func() bool { return strings.Contains(d.log.String(), "no room") })

	// Kubelet forgets a driver whose socket is gone, so a driver removes it when it ends.
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	state, err := d.cmd.Process.Wait()
	require.NoError(t, err)
	require.Zero(t, state.ExitCode(), "%s", d.log)
	_, err = os.Stat(d.path("registration", "lsiofs.csi-reg.sock"))
	require.ErrorIs(t, err, os.ErrNotExist)
	d.cmd = nil
}

func TestStatisticsReportBytesReadAndServerHealth(t *testing.T) {
	d, data := startDriver(t), dataset(t)
	a := pod{name: "a", attributes: map[string]string{"dataset": data}}
	require.NoError(t, d.publish(a))
	stats := func() *csi.NodeGetVolumeStatsResponse {
		r, err := d.node.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "csi-a", VolumePath: d.target(a)})
		require.NoError(t, err)
		require.Len(t, r.GetUsage(), 1)
		return r
	}
	want := stream(t, data)
	before := stats()
	require.EqualValues(t, len(want), before.GetUsage()[0].GetTotal())
	require.Zero(t, before.GetUsage()[0].GetUsed())
	d.requireReads(a, "worker-0.jsonl", want)
	require.EqualValues(t, len(want), stats().GetUsage()[0].GetUsed())
	require.False(t, stats().GetVolumeCondition().GetAbnormal())
	require.NoError(t, syscall.Kill(d.servers()[0], syscall.SIGKILL))
	d.until(func() bool { return stats().GetVolumeCondition().GetAbnormal() })
	require.Contains(t, stats().GetVolumeCondition().GetMessage(), "ENOTCONN")
	d.unpublish(a)
	d.requireNothingLeft()
}

func TestServerMemoryIsLimited(t *testing.T) {
	d, data := startDriver(t, "--memory-limit=256MiB"), dataset(t)
	a := pod{name: "a", attributes: map[string]string{"dataset": data}}
	requireStatus(t, d.publish(pod{name: "greedy", attributes: map[string]string{"dataset": data, "memory": "200MiB"}}), 3, "memory", "128 MiB")
	require.NoError(t, d.publish(a))
	pid := filepath.Join("/proc", strconv.Itoa(d.servers()[0]))
	args, err := os.ReadFile(filepath.Join(pid, "cmdline"))
	require.NoError(t, err)
	require.True(t, bytes.Contains(args, []byte("--memory=134217728B")), "%s", args)
	limits, err := os.ReadFile(filepath.Join(pid, "limits"))
	require.NoError(t, err)
	groups, err := os.ReadFile(filepath.Join(pid, "cgroup"))
	require.NoError(t, err)
	grouped := regexp.MustCompile(`(?m)memory:.*/lsiofs-[0-9a-f]{32}$|^0::.*/lsiofs-[0-9a-f]{32}$`).Match(groups)
	require.True(t, grouped || bytes.Contains(limits, []byte("805306368")), "%s%s", groups, limits)
	d.unpublish(a)
	d.requireNothingLeft()
}

// lockedDir is the variable that makes this program a driver that only locks a state directory (see
// TestMain).
const lockedDir = "LSIOFS_TEST_LOCK"

// holdLock locks a directory and starts a program that inherits the lock's file and runs until its
// input ends. Every child has that file open between fork and exec.
func holdLock(dir string) error {
	lock, err := onlyDriver(dir)
	if err != nil {
		return err
	}
	child := exec.Command("cat")
	child.Stdin, child.ExtraFiles = os.Stdin, []*os.File{lock}
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println(child.Process.Pid)
	return child.Wait()
}

func TestRunningDriverHoldsLockAndKilledDriverReleasesIt(t *testing.T) {
	dir := t.TempDir()
	first := exec.Command(os.Args[0])
	first.Env = append(os.Environ(), lockedDir+"="+dir)
	input, err := first.StdinPipe()
	require.NoError(t, err)
	output, err := first.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, first.Start())
	t.Cleanup(func() {
		require.NoError(t, input.Close()) // ends its child
		_ = first.Process.Kill()          // it may have been killed
		_ = first.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	child := 0
	_, err = fmt.Sscan(line, &child)
	require.NoError(t, err, line)

	_, err = onlyDriver(dir)
	require.EqualError(t, err, fmt.Sprintf("lock --state %s: another driver (process %d) uses it: end that one first, or name another directory", dir, first.Process.Pid))

	require.NoError(t, first.Process.Kill())
	_, err = first.Process.Wait()
	require.NoError(t, err)
	open, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/3", child))
	require.NoError(t, err, "the child lives")
	require.Equal(t, filepath.Join(dir, "lock"), open)
	lock, err := onlyDriver(dir)
	require.NoError(t, err)
	require.NoError(t, lock.Close())
}
