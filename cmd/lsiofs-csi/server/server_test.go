package server

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/state"
)

// script returns a configuration with a shell script in place of lsiofs.
func script(t *testing.T, text string) Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lsiofs")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
	return Config{Program: path, Point: t.TempDir(), Log: os.Stderr, Started: func(state.Process) error { return nil }}
}

// It has ended before it is identified.
func TestErrorOfImmediatelyFailingServerIsReported(t *testing.T) {
	c := script(t, `echo '{"error":{"text":"no such dataset","code":3}}' >&3`)
	c.Started = func(p state.Process) error {
		require.Eventually(t, func() bool { _, lives, err := identify(p.PID); return err == nil && !lives }, time.Minute, time.Millisecond)
		return nil
	}
	s, err := Start(c)
	require.NoError(t, err)
	require.Equal(t, &Failure{Text: "no such dataset", Code: 3}, s.Ready(t.Context()))
	require.False(t, s.Alive())
	require.NoError(t, s.Stop())
	require.NoError(t, s.Stop())
}

func TestErrorForSilentServerExitNamesLog(t *testing.T) {
	s, err := Start(script(t, `echo '{"progress":{"Shards":1,"ShardsTotal":3}}' >&3`))
	require.NoError(t, err)
	require.ErrorContains(t, s.Ready(t.Context()), "see the driver's log")
	require.NoError(t, s.Stop())
}

func TestServerProgressIsReportedDuringStart(t *testing.T) {
	s, err := Start(script(t, `echo '{"progress":{"Shards":1,"ShardsTotal":3}}' >&3; exec sleep 600`))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Doing() == "indexing: 1 of 3 shards" }, time.Minute, time.Millisecond)
	require.False(t, s.Serving())
	require.NoError(t, s.Stop(), "it is told to end")
	<-s.Ended()
}

// Process numbers are reused.
func TestProcessWithReusedPIDIsNotAdoptedOrKilled(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p, lives, err := identify(cmd.Process.Pid)
	require.NoError(t, err)
	require.True(t, lives)
	for _, other := range []state.Process{
		{PID: p.PID, Ticks: p.Ticks + 1, Boot: p.Boot}, {PID: p.PID, Ticks: p.Ticks, Boot: "another"}, {},
	} {
		_, err := Adopt(other, t.TempDir())
		require.ErrorIs(t, err, unix.ESRCH)
		require.NoError(t, Kill(other))
	}
	_, lives, err = identify(cmd.Process.Pid)
	require.NoError(t, err)
	require.True(t, lives)
	s, err := Adopt(p, t.TempDir())
	require.NoError(t, err)
	require.True(t, s.Alive() && s.Serving())
	s.Release()
	require.NoError(t, Kill(p))
	require.Error(t, cmd.Wait())
}
