package serve

import (
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUntilWaitsForConditionProcessOrLimit(t *testing.T) {
	for _, c := range []struct {
		name       string
		holds      time.Duration // when it becomes true
		exits      time.Duration // when the process ends; 0: there is none
		takes      time.Duration // at most, plus a look
		err        string
		lastChance bool // holds once the process has ended
	}{
		{name: "at once", takes: 0},
		{name: "later", holds: time.Second, takes: time.Second},
		{name: "while the process lives", holds: time.Second, exits: time.Minute, takes: time.Second},
		{name: "never", holds: time.Hour, takes: time.Minute, err: "not so within 1m0s"},
		{name: "the process ends first", holds: time.Hour, exits: time.Second, takes: time.Second, err: ErrExited.Error()},
		{name: "the process ends with it", exits: time.Second, takes: time.Second, lastChance: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var exited chan struct{}
				if c.exits > 0 {
					exited = make(chan struct{})
					time.AfterFunc(c.exits, func() { close(exited) })
				}
				err := Until(time.Minute, exited, func() bool {
					if c.lastChance {
						select {
						case <-exited:
							return true
						default:
							return false
						}
					}
					return time.Since(began) >= c.holds
				})
				if c.err == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, c.err)
				}
				require.LessOrEqual(t, time.Since(began), c.takes+lookEvery)
				if exited != nil {
					<-exited // no timer outlives the bubble
				}
			})
		})
	}
}

func TestLaunchReportsHowProcessEnds(t *testing.T) {
	cmd := exec.Command("sh", "-c", "exit 7")
	exited, err := Launch(cmd)
	require.NoError(t, err)
	require.ErrorIs(t, Until(time.Minute, exited, func() bool { return false }), ErrExited)
	require.Equal(t, 7, cmd.ProcessState.ExitCode())
	_, err = Launch(exec.Command("/nothing/there"))
	require.Error(t, err)
}
