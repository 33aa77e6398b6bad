package cluster

import (
	"bytes"
	"fmt"
	"maps"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// logs are the logs of all pods of a job, including pods that are gone.
type logs struct {
	mu   sync.Mutex
	said map[string]*log // by pod
	stop chan struct{}
	work sync.WaitGroup
}

// log is the log of a pod.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns the complete lines.
func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.text.Bytes()
	return string(b[:bytes.LastIndexByte(b, '\n')+1])
}

// collect follows the logs of a job's pods, from their first line, until end. A pod that is gone
// before kubectl requests its log has none.
func (c *cluster) collect(job string) *logs {
	l := &logs{said: map[string]*log{}, stop: make(chan struct{})}
	l.work.Go(func() {
		for {
			out, _ := c.try("get", "pods", "--selector", "job-name="+job, "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.phase}{"\n"}{end}`)
			for line := range strings.Lines(out) {
				name, phase, _ := strings.Cut(strings.TrimSpace(line), " ")
				if l.of(name) == nil && phase != "Pending" {
					l.begin(c, name)
				}
			}
			select {
			case <-l.stop:
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
	})
	return l
}

func (l *logs) of(pod string) *log {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said[pod]
}

func (l *logs) begin(c *cluster, pod string) {
	own := &log{}
	l.mu.Lock()
	l.said[pod] = own
	l.mu.Unlock()
	cmd := c.nodes[0].Command(nil, c.bin+"/kubectl", "--kubeconfig="+c.kubeconfig(), "logs", "--follow", pod)
	cmd.Stdout = own
	if err := cmd.Start(); err != nil {
		_, _ = fmt.Fprintln(own, err)
		return
	}
	l.work.Go(func() { wait(cmd, l.stop) })
}

// wait waits for a program, and ends it when stop is closed.
func wait(cmd *exec.Cmd, stop <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its pod may be gone
		close(ended)
	}()
	select {
	case <-ended:
	case <-stop:
		select {
		case <-ended:
		case <-time.After(5 * time.Second): // its node may be gone
			_ = cmd.Process.Kill()
			<-ended
		}
	}
}

// end stops collecting, and returns the log of each pod.
func (l *logs) end() map[string]string {
	close(l.stop)
	l.work.Wait()
	return l.now()
}

// now returns the log of each pod so far.
func (l *logs) now() map[string]string {
	l.mu.Lock()
	said := maps.Clone(l.said)
	l.mu.Unlock()
	texts := map[string]string{}
	for pod, own := range said {
		texts[pod] = own.String()
	}
	return texts
}
