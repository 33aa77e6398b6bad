// Package reference lets Go tests query the second implementation of the order and of records,
// which is written in Python (reference.py, in this directory). Its core is the program in the
// pages of the specification (order.py for the order, formats.py and elements.py for records).
package reference

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// Process is a running reference.py that has loaded one dataset. It answers one
// request at a time; its methods may be called concurrently.
type Process struct {
	cmd   *exec.Cmd
	stdin io.Closer

	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

// Start runs reference.py, which is in directory dir, on a dataset. args are the dataset's flags,
// environment is that of the process.
func Start(python, dir, dataset string, environment, args []string) (*Process, error) {
	cmd := exec.Command(python, append([]string{dir + "/reference.py", dataset, "--requests"}, args...)...)
	cmd.Env = environment
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Process{cmd: cmd, stdin: stdin, in: stdin, out: bufio.NewReader(stdout)}, nil
}

// ErrRefused means that the reference does not read a dataset, because it is damaged or not
// supported.
var ErrRefused = errors.New("the reference refuses the dataset")

// Ask sends a question, an object with options as keys, and returns the answer. It returns
// ErrRefused if the dataset can't be read with the question's on-corrupt.
func (p *Process) Ask(question any) ([]byte, error) {
	line, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("the reference does not listen: %w", err)
	}
	head, err := p.out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the reference died of %s: %w", line, err)
	}
	if why, refused := strings.CutPrefix(head, "refused "); refused {
		return nil, fmt.Errorf("%w: %s", ErrRefused, strings.TrimSpace(why))
	}
	n, err := strconv.Atoi(strings.TrimSpace(head))
	if err != nil {
		return nil, fmt.Errorf("the reference answered %s with %q", line, head)
	}
	answer := make([]byte, n)
	_, err = io.ReadFull(p.out, answer)
	return answer, err
}

// Kill kills it; requests under way fail.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Close ends it and waits for its end.
func (p *Process) Close() {
	_ = p.stdin.Close()
	_ = p.cmd.Wait()
}
