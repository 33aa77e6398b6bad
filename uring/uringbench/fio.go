package uringbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

// Engines of fio that jobs are compared with.
const (
	FioUring = "io_uring" // one process, Depth reads at a time
	FioPsync = "psync"    // pread in Depth processes
)

// ErrNoFio is returned if fio is not installed.
var ErrNoFio = errors.New("fio is not installed")

// Fio runs a job with fio instead of an engine; Job.Mode is ignored. fio is set up to perform best:
// no clock around each read, random blocks without a map of those drawn, buffers in whole huge
// pages if glibc supports it (2.35), and with io_uring, buffers and file registered.
//
// ShiftBytes is not supported. A sequential job of psync gives each process its own part of the
// region. CPU is that of the reading processes, without fio's start.
func Fio(ctx context.Context, j Job, ioengine string) (Result, error) {
	program, err := exec.LookPath("fio")
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrNoFio, err)
	}
	f, numBlocks, err := j.open()
	if err != nil {
		return Result{}, err
	}
	if err := f.Close(); err != nil {
		return Result{}, err
	}
	cmd := exec.CommandContext(ctx, program, fioArguments(j, ioengine, numBlocks)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) } // it ends its children
	cmd.WaitDelay = 5 * time.Second
	// malloc then asks for huge pages, like uring.Map. fio's own way (mmaphuge) needs pages that an
	// administrator has set aside.
	cmd.Env = append(os.Environ(), "GLIBC_TUNABLES=glibc.malloc.hugetlb=1")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return Result{}, fmt.Errorf("fio: %w: %s", errors.Join(err, ctx.Err()), bytes.TrimSpace(complaints.Bytes()))
	}
	return fioResult(out)
}

func fioArguments(j Job, ioengine string, numBlocks int64) []string {
	region := numBlocks * int64(j.BlockBytes)
	args := []string{
		"--name=lsiofs", "--filename=" + j.Path, "--readonly", "--allow_file_create=0", "--invalidate=0",
		"--output-format=json", "--group_reporting", "--gtod_reduce=1", "--norandommap",
		"--ioengine=" + ioengine, "--iomem=malloc", "--bs=" + strconv.Itoa(j.BlockBytes),
	}
	if j.Direct {
		args = append(args, "--direct=1")
	}
	if j.Random {
		args = append(args, "--rw=randread")
	} else {
		args = append(args, "--rw=read")
	}
	if j.Depth*j.BlockBytes >= uring.HugePageBytes {
		args = append(args, "--iomem_align="+strconv.Itoa(uring.HugePageBytes))
	}
	processes := int64(1)
	if ioengine == FioUring {
		args = append(args, "--iodepth="+strconv.Itoa(j.Depth), "--fixedbufs=1", "--registerfiles=1")
	} else {
		processes = int64(j.Depth)
		args = append(args, "--numjobs="+strconv.Itoa(j.Depth))
	}
	if !j.Random && processes > 1 {
		region = max(1, numBlocks/processes) * int64(j.BlockBytes)
		args = append(args, "--offset_increment="+strconv.FormatInt(region, 10))
	}
	args = append(args, "--size="+strconv.FormatInt(region, 10))
	if j.Bytes > 0 {
		share := (j.limit() + processes - 1) / processes * int64(j.BlockBytes)
		args = append(args, "--io_size="+strconv.FormatInt(share, 10))
	}
	if j.Duration > 0 {
		args = append(args, "--runtime="+strconv.FormatInt(max(1, j.Duration.Milliseconds()), 10)+"ms")
		if j.Bytes <= 0 {
			args = append(args, "--time_based")
		}
	}
	return args
}

// fioResult parses fio's output.
func fioResult(out []byte) (Result, error) {
	// Notes come before it.
	if i := bytes.IndexByte(out, '{'); i > 0 {
		out = out[i:]
	}
	var report struct {
		Jobs []struct {
			Error         int     `json:"error"`
			RuntimeMilli  float64 `json:"job_runtime"` // total of all processes
			UserPercent   float64 `json:"usr_cpu"`     // percentage of job_runtime
			SystemPercent float64 `json:"sys_cpu"`
			Read          struct {
				Bytes        int64   `json:"io_bytes"`
				Reads        int64   `json:"total_ios"`
				RuntimeMilli float64 `json:"runtime"`
			} `json:"read"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return Result{}, fmt.Errorf("what fio prints can't be read: %w", err)
	}
	if len(report.Jobs) != 1 || report.Jobs[0].Error != 0 || report.Jobs[0].Read.RuntimeMilli == 0 {
		return Result{}, errors.New("fio has read nothing, or met an error")
	}
	job := report.Jobs[0]
	return Result{
		Bytes:      job.Read.Bytes,
		Reads:      job.Read.Reads,
		Seconds:    job.Read.RuntimeMilli / 1e3,
		CPUSeconds: (job.UserPercent + job.SystemPercent) / 100 * job.RuntimeMilli / 1e3,
	}, nil
}
