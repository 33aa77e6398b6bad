package uring

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// sandboxVariable makes the test binary refuse a system call to itself, as container runtimes do:
// "CALL ERRNO", as numbers.
const sandboxVariable = "LSIOFS_TEST_REFUSE_SYSCALL"

func TestMain(m *testing.M) {
	if value := os.Getenv(sandboxVariable); value != "" {
		var call, errno uint32
		_, err := fmt.Sscan(value, &call, &errno)
		if err == nil {
			err = refuseSyscall(call, errno)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "can't make the sandbox: %v\n", err)
			os.Exit(1)
		}
	}
	if os.Getenv(nobodyVariable) != "" {
		if err := becomeNobody(); err != nil {
			fmt.Fprintf(os.Stderr, "can't become nobody: %v\n", err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// nobodyVariable makes the test binary give up its privileges and its lockable memory.
const nobodyVariable = "LSIOFS_TEST_AS_NOBODY"

const nobody = 65534

func becomeNobody() error {
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("limit locked memory: %w", err)
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setgid(nobody); err != nil {
		return fmt.Errorf("setgid: %w", err)
	}
	return syscall.Setuid(nobody)
}

// refuseSyscall makes a system call fail in all threads of this process, for the rest of its life.
func refuseSyscall(number, errno uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: number},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | errno},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		return fmt.Errorf("seccomp: %w", failed)
	}
	return nil
}
