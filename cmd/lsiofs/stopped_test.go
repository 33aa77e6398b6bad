package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
)

// Scripts unmount or remove the dataset's disk after umount.
func TestUmountReturnsWhenTheServerHasLetGoOfTheDataset(t *testing.T) {
	mnt, info := daemon(t, dataset(t))
	require.NotEmpty(t, read(t, mnt, "worker-0.tar"))
	r := umountInOwnProcess(t, mnt)
	require.Equal(t, exit.OK, r.code, r.stderr)
	state := stateOf(info.PID)
	require.True(t, state == "" || state == "Z", "the server is in state %s", state)
}

// A file copied into a mount is kept in memory, in case it is renamed onto checkpoint.
func TestUmountNamesFilesLostWithMount(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	mnt, _ := daemon(t, dataset(t), "--log-file", log)
	require.NoError(t, os.WriteFile(filepath.Join(mnt, "model.pt"), []byte("weights"), 0o600))
	require.Contains(t, read(t, mnt, "status"), "in memory, and lost when the mount ends unless renamed onto checkpoint: model.pt")
	r := umountInOwnProcess(t, mnt)
	require.Equal(t, exit.OK, r.code, r.stderr)
	require.Contains(t, r.stderr, "are lost: model.pt;")
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(text), "model.pt")
}

// stop stops all threads of a process. A request that a thread has already read would otherwise
// block its client, even a killed one, until the process continues.
func stop(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // it may have ended
	require.Eventually(t, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		require.NoError(t, err)
		return len(threads) > 0 && !slices.ContainsFunc(threads, func(stat string) bool { return stateIn(stat) != "T" })
	}, patience, time.Millisecond)
}

// stateOf returns the state of a process as ps shows it, or "" if it is gone.
func stateOf(pid int) string { return stateIn(fmt.Sprintf("/proc/%d/stat", pid)) }

func stateIn(file string) string {
	stat, _ := os.ReadFile(file)
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) == 0 {
		return ""
	}
	return fields[0]
}

// Looking at a path of a mount whose server is stopped would hang until the server continues.
func TestCommandsNameStoppedServer(t *testing.T) {
	data := dataset(t)
	mnt, info := daemon(t, data)
	ckpt := filepath.Join(t.TempDir(), "ckpt.json")
	require.NoError(t, os.WriteFile(ckpt, []byte(read(t, mnt, "checkpoint")), 0o600))
	stop(t, info.PID)
	var all sync.WaitGroup
	for _, args := range [][]string{
		{"mount", data, mnt}, {"mount", data, filepath.Join(mnt, "epoch-0"), "--daemon"}, {"checkpoint", "show", mnt}, {"checkpoint", "save", mnt, ckpt + ".2"},
		{"checkpoint", "restore", ckpt, mnt}, {"next", mnt}, {"top", mnt},
	} {
		all.Go(func() {
			c := program(t, args...)
			var stderr bytes.Buffer
			c.Stderr = &stderr
			err := c.Run()
			if err == nil || c.ProcessState.ExitCode() != int(exit.Mount) || !strings.Contains(stderr.String(), mnt) ||
				!strings.Contains(stderr.String(), "kill -CONT "+strconv.Itoa(info.PID)) {
				t.Errorf("%v: %v: %s", args, err, stderr.String())
			}
		})
	}
	all.Wait()
	r := umountInOwnProcess(t, mnt)
	require.Equal(t, exit.Mount, r.code)
	require.Contains(t, r.stderr, "kill -CONT "+strconv.Itoa(info.PID))
	if strings.Contains(r.stderr, "is busy") {
		// Another program of this machine looks at all mounts, as top --listen does, and waits.
		require.NoError(t, syscall.Kill(info.PID, syscall.SIGCONT))
		require.Eventually(t, func() bool { return umountInOwnProcess(t, mnt).code == exit.OK }, patience, 10*time.Millisecond)
	}
	requireUnmounted(t, mnt)
}

// A request that is not answered keeps a mount busy, although its program has nothing open there.
func TestUmountNamesStoppedServerThatOthersWaitFor(t *testing.T) {
	mnt, info := daemon(t, dataset(t))
	stop(t, info.PID)
	looking := exec.Command("stat", filepath.Join(mnt, "README"))
	require.NoError(t, looking.Start())
	require.Eventually(t, func() bool { return stateOf(looking.Process.Pid) == "S" }, patience, time.Millisecond)
	r := umountInOwnProcess(t, mnt)
	require.Equal(t, exit.Mount, r.code)
	require.Contains(t, r.stderr, mnt+" is busy")
	require.Contains(t, r.stderr, "kill -CONT "+strconv.Itoa(info.PID))
	require.NoError(t, syscall.Kill(info.PID, syscall.SIGCONT))
	require.NoError(t, looking.Wait())
}

// A page in the browser for a mount reads its status each second, and names a server that is
// stopped, without asking it anything: then the mount would be busy until the server resumes.
func TestTopThatListensDoesNotKeepAMountFromBeingUnmounted(t *testing.T) {
	for _, stopped := range []bool{true, false} {
		t.Run(fmt.Sprint("stopped=", stopped), func(t *testing.T) {
			mnt, info := daemon(t, dataset(t))
			if stopped {
				stop(t, info.PID)
			}
			top := program(t, "top", "--listen", "0", "--json", mnt)
			out, err := top.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, top.Start())
			t.Cleanup(func() {
				_ = top.Process.Kill()
				_ = top.Wait()
			})
			var page struct{ URL string }
			require.NoError(t, json.NewDecoder(out).Decode(&page))
			seen := func(path, want string) {
				t.Helper()
				require.Eventually(t, func() bool {
					r, err := http.Get(page.URL + path)
					if err != nil {
						return false
					}
					defer r.Body.Close()
					body, err := io.ReadAll(r.Body)
					return err == nil && strings.Contains(string(body), want)
				}, patience, 10*time.Millisecond, want)
			}
			if stopped {
				seen("board.json", "kill -CONT "+strconv.Itoa(info.PID))
				seen("metrics", "} 0\n")
			} else {
				seen("board.json", `"verdict"`)
				seen("metrics", "} 1\n")
			}
			r := umountInOwnProcess(t, mnt)
			if stopped {
				require.Equal(t, exit.Mount, r.code)
				require.Contains(t, r.stderr, "unmounted "+mnt+", but its server")
				requireUnmounted(t, mnt)
				seen("board.json", "is not a mount of lsiofs")
				return
			}
			require.Equal(t, exit.OK, r.code, r.stderr)
			requireUnmounted(t, mnt)
			seen("board.json", mnt+" was unmounted")
		})
	}
}

// doctor looks at all mounts of this machine, those of others included.
func TestDoctorLeavesStoppedServersAlone(t *testing.T) {
	mnt, info := daemon(t, dataset(t))
	stop(t, info.PID)
	out, _ := program(t, "doctor").Output() // its exit code depends on this machine
	require.Contains(t, string(out), mnt+": its server is stopped (process "+strconv.Itoa(info.PID))
}

// A dataset may be on a file system that does not answer. Here it is the mount of a stopped server.
func TestCommandShowsWhichFileSystemItWaitsFor(t *testing.T) {
	mnt, info := daemon(t, dataset(t))
	stop(t, info.PID)
	c := program(t, "cat", filepath.Join(mnt, "epoch-0"))
	stderr, err := c.StderrPipe()
	require.NoError(t, err)
	var stdout bytes.Buffer
	c.Stdout = &stdout
	require.NoError(t, c.Start())
	lines := bufio.NewScanner(stderr)
	require.True(t, lines.Scan())
	require.Contains(t, lines.Text(), "waiting: "+mnt+": it does not answer: its server is stopped")
	require.Contains(t, lines.Text(), "kill -CONT "+strconv.Itoa(info.PID))
	require.NoError(t, syscall.Kill(info.PID, syscall.SIGCONT))
	for lines.Scan() {
	}
	require.NoError(t, c.Wait())
	require.NotEmpty(t, stdout.Bytes(), "it goes on when the server does")
}
