// Command pod is what the containers of the test's pods run: it needs nothing beside itself.
//
//	pod pause            does nothing, for a pod's sandbox
//	pod train MNT SAVES  trains on worker-JOB_COMPLETION_INDEX, as examples/kubernetes/train.py
//	pod read MNT [N]     prints N records of worker 0, or all, and then waits
//	pod begin STATE …    what examples/kubernetes/begin.yaml does, by lsiofs
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

func main() {
	var err error
	switch os.Args[1] {
	case "pause":
		wait()
	case "train":
		err = train(os.Args[2], os.Args[3])
	case "read":
		err = read(os.Args[2:])
	case "begin":
		err = begin(os.Args[2], os.Getenv("RUN"), os.Getenv("AFTER"))
	default:
		err = fmt.Errorf("no such command: %v", os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(1)
	}
}

// wait waits for a signal to end.
func wait() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	<-c
}

// write writes a file whole or not at all.
func write(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", b, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

func load(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// checkpoint is a mount's, of which one worker's count is changed.
type checkpoint map[string]any

func (k checkpoint) consumed() []any {
	done := k["done"].([]any)
	return done[len(done)-1].(map[string]any)["consumed"].([]any)
}

// train counts labels, and saves after every step: the model, then the checkpoint that it belongs to.
func train(mnt, saves string) error {
	index, err := strconv.Atoi(os.Getenv("JOB_COMPLETION_INDEX"))
	if err != nil {
		return err
	}
	step, _ := strconv.Atoi(os.Getenv("STEP_RECORDS"))
	pause, _ := time.ParseDuration(os.Getenv("STEP_TIME"))
	model, used := map[string]int{}, 0
	own := filepath.Join(saves, fmt.Sprintf("checkpoint-%d.json", index))
	models := func(n int) string { return filepath.Join(saves, fmt.Sprintf("model-%d-%d.json", index, n)) }
	save := func() error {
		k := checkpoint{}
		if err := load(filepath.Join(mnt, "checkpoint"), &k); err != nil {
			return err
		}
		list := k.consumed()
		for i := range list {
			list[i] = 0
		}
		list[index] = used
		if err := write(models(used), model); err != nil {
			return err
		}
		fmt.Println("saved", used)
		return write(own, k)
	}
	k := checkpoint{}
	switch err = load(own, &k); {
	case os.IsNotExist(err):
		err = save()
	case err == nil:
		used = int(k.consumed()[index].(float64))
		err = load(models(used), &model)
	}
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(mnt, fmt.Sprintf("worker-%d.jsonl", index)))
	if err != nil {
		return err
	}
	defer f.Close()
	lines, skip := bufio.NewScanner(f), used
	for lines.Scan() {
		if skip > 0 {
			skip--
			continue
		}
		var sample struct{ Label string }
		if err := json.Unmarshal(lines.Bytes(), &sample); err != nil {
			return err
		}
		model[sample.Label]++
		if used++; used%step == 0 {
			if err := save(); err != nil {
				return err
			}
			time.Sleep(pause)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return save()
}

func read(args []string) error {
	list, err := filepath.Glob(filepath.Join(args[0], "worker-0*.jsonl"))
	if err != nil || len(list) == 0 {
		return fmt.Errorf("%s has no worker-0: %v", args[0], err)
	}
	f, err := os.Open(list[0])
	if err != nil {
		return err
	}
	defer f.Close()
	lines, most := bufio.NewScanner(f), -1
	if len(args) > 1 {
		if most, err = strconv.Atoi(args[1]); err != nil {
			return err
		}
	}
	for n := 0; n != most && lines.Scan(); n++ {
		fmt.Println(lines.Text())
	}
	if err := lines.Err(); err != nil {
		return err
	}
	wait()
	return nil
}

// begin says where all pods of a run begin.
func begin(state, run, after string) error {
	dir := filepath.Join(state, run)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	start := filepath.Join(dir, "start.json")
	if after == "" {
		return write(start, map[string]any{"epoch": 0})
	}
	saved, err := filepath.Glob(filepath.Join(state, after, "checkpoint-*.json"))
	if err != nil {
		return err
	}
	cmd := exec.Command("/lsiofs", append([]string{"checkpoint", "merge", "-o", start}, saved...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
