package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
)

func TestHangingCommandEndsWithinSecondOfSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		hangs := func(context.Context) error { <-goOn; return nil }
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		require.ErrorIs(t, new(interrupts).during(ctx, hangs), context.Canceled)
		require.Less(t, time.Since(begin), time.Second)

		failed := errors.New("failed")
		require.ErrorIs(t, new(interrupts).during(ctx, func(context.Context) error { return failed }), failed, "what it says in time counts")
		i := new(interrupts)
		i.taken.Store(true)
		done := make(chan error)
		go func() { done <- i.during(ctx, hangs) }()
		time.Sleep(time.Minute)
		close(goOn)
		require.NoError(t, <-done, "one that has something to put in order is waited for")
	})
}

// A service that accepts connections and never answers blocks every command, but no command's end.
func TestSignalsEndEveryCommandWaitingForService(t *testing.T) {
	needMount(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	asked := make(chan net.Conn, 64)
	go func() { // ends with the listener
		for {
			c, err := silent.Accept()
			if err != nil {
				close(asked)
				return
			}
			asked <- c
		}
	}()
	dir := t.TempDir()
	bucket := []string{"s3://bucket/train", "--endpoint", "http://" + silent.Addr().String(), "--anonymous"}
	web := "http://" + silent.Addr().String() + "/train.jsonl"
	for i, args := range [][]string{
		append([]string{"index"}, bucket...), append([]string{"inspect"}, bucket...), append([]string{"verify"}, bucket...),
		append([]string{"cat"}, bucket...), append([]string{"plan"}, bucket...), append([]string{"cache", "warm"}, bucket...),
		append([]string{"tune"}, bucket...), append([]string{"doctor"}, bucket...),
		append([]string{"mount", "--rmdir"}, append(bucket, emptyDir(t, dir, "mnt"))...),
		append([]string{"mount", "--daemon"}, append(bucket, emptyDir(t, dir, "daemon"))...),
		{"cat", web}, {"mount", web, emptyDir(t, dir, "web")},
	} {
		name := args[0]
		c := program(t, append(args, "--index-dir", filepath.Join(dir, "index"))...)
		if name == "tune" || name == "doctor" || name == "cache" {
			c = program(t, args...)
		}
		var stderr bytes.Buffer
		c.Stderr = &stderr
		require.NoError(t, c.Start())
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		select {
		case conn := <-asked:
			defer conn.Close()
		case err := <-ended:
			t.Fatalf("%v ended before it asked the service: %v: %s", args, err, stderr.String())
		}
		require.NoError(t, c.Process.Signal([]os.Signal{os.Interrupt, syscall.SIGTERM}[i%2]))
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatalf("%v has not ended: %s", args, stderr.String())
		}
		require.Equal(t, int(exit.Interrupted), c.ProcessState.ExitCode(), "%v: %s", args, stderr.String())
		for len(asked) > 0 { // from this command
			(<-asked).Close()
		}
	}
}

func emptyDir(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.Mkdir(path, 0o755))
	return path
}
