package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/mounting"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

// server is a mount in a child process, because a demo that read from a mount of its own process
// could deadlock.
type server struct {
	child mounting.Child
	log   *os.File
	ended chan error // receives the process's end once
}

// mount shows a command that mounts and does the same, except that the process is a child of the
// demo and ends with it.
func (d *demo) mount(ctx context.Context, command string) error {
	args := slices.DeleteFunc(d.typed(command), func(word string) bool { return word == "--daemon" })[2:] // without "lsiofs mount"
	log, err := os.OpenFile(d.path("$D/mount.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	m := &server{child: mounting.Child{Args: args, Output: log}, log: log, ended: make(chan error, 1)}
	if err := m.child.Start(ctx, reporter{d}); err != nil {
		return errors.Join(err, log.Close())
	}
	go func() { m.ended <- m.child.Cmd.Wait() }()
	d.child = m
	return nil
}

// reporter shows the mount's reports.
type reporter struct{ d *demo }

func (r reporter) Progress(catalog.Progress) {}
func (r reporter) Filling(opening.Filled)    {}
func (r reporter) Waiting(opening.Waited)    {}
func (r reporter) Warn(text string)          { r.d.say("warning: %s", text) }
func (r reporter) Trouble(text string)       { r.Warn(text) }
func (r reporter) Serving(func() string)     {}
func (r reporter) Unmounting()               {}
func (r reporter) Ended(error)               {}

func (r reporter) Mounted(i mounting.Info) {
	r.d.say("mounted: %s of %s left to read", terminal.Count(i.Left), terminal.Plural(i.Records, "record"))
	for _, f := range i.Files {
		if info, err := os.Stat(f); err == nil {
			r.d.say("$D/mnt/%s  %s", filepath.Base(f), terminal.Plural(uint64(info.Size()), "byte"))
		}
	}
}

// unmountTime bounds how long a server may take to end after the unmount.
const unmountTime = 20 * time.Second

// unmount unmounts and waits until the server has ended cleanly.
func (d *demo) unmount(ctx context.Context) error {
	point := d.typed("lsiofs umount $D/mnt")[2]
	quiet := terminal.New(d.ui.Out, d.ui.Err)
	quiet.JSON, quiet.Out = true, discard{}
	if err := mounting.Unmount(ctx, mounting.UnmountOptions{Point: point}, quiet); err != nil {
		return err
	}
	return d.await(unmountTime)
}

// await waits for the end of the server and returns an error if it failed or does not end in time.
func (d *demo) await(patience time.Duration) error {
	m := d.child
	select {
	case err := <-m.ended:
		d.child = nil
		if err != nil {
			log, _ := os.ReadFile(m.log.Name()) // the error is reported even without it
			err = fmt.Errorf("the mount's process: %w: %s", err, log)
		}
		return errors.Join(err, m.log.Close())
	case <-time.After(patience):
		return fmt.Errorf("the mount's process (%d) did not end within %v of the unmount", m.child.Cmd.Process.Pid, patience)
	}
}

// cleanUp removes the mount, the process and, unless keep is set, the files.
func (d *demo) cleanUp(keep bool) error {
	var problems []error
	point := d.path("$D/mnt")
	if d.child != nil {
		p := d.child.child.Cmd.Process
		_ = p.Signal(syscall.SIGTERM) // an error: it has ended already
		if d.await(unmountTime) != nil && d.child != nil {
			_ = p.Kill()
			<-d.child.ended
			problems = append(problems, d.child.log.Close())
			if err := mounting.UnmountPoint(context.Background(), point, true); err != nil {
				problems = append(problems, fmt.Errorf("unmount %s: %w", point, err))
			}
			d.child = nil
		}
	}
	if keep {
		d.step("The dataset and the checkpoint were kept. To remove them:")
		d.say("rm -r %s", terminal.Quote(d.dir))
		return errors.Join(problems...)
	}
	// Never remove through a mount that is still there.
	if mounts, err := fs.Mounts(); err == nil {
		if _, ok := fs.TopMount(mounts, point); ok {
			return errors.Join(append(problems, fmt.Errorf("%s is still mounted: lsiofs umount --lazy %s", point, point))...)
		}
	}
	return errors.Join(append(problems, os.RemoveAll(d.dir))...)
}

// discard is a writer that discards all output.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
