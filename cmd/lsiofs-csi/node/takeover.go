package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/mounts"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/server"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/state"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/volume"
)

// takeOver finds the servers that are alive, ends what is left of others, forgets volumes of pods
// that are gone, and stops servers without volumes.
func (n *Node) takeOver() error {
	volumes, err := n.c.Store.Volumes()
	if err != nil {
		return err
	}
	for _, v := range volumes {
		// Kubelet makes the directory that contains a target, and removes it with the pod.
		if _, err := os.Lstat(filepath.Dir(v.Target)); errors.Is(err, os.ErrNotExist) {
			n.c.Log.Info("a volume is forgotten, whose pod is gone", "volume", v.ID, "target", v.Target)
			if err := n.c.Store.RemoveVolume(v.Target); err != nil {
				return err
			}
		}
	}
	keys, err := n.c.Store.Servers()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := errors.Join(n.find(key), n.stopUnused(context.Background(), key)); err != nil {
			return err
		}
	}
	t, err := mounts.Read()
	if err != nil {
		return err
	}
	for _, point := range t.Below(n.c.Store.Dir()) {
		if key := filepath.Base(filepath.Dir(point)); !slices.Contains(keys, key) {
			n.c.Log.Warn("a mount is taken away that nobody knows of", "point", point)
			if err := mounts.Detach(point); err != nil {
				return err
			}
		}
	}
	return nil
}

// find adopts a server that serves, and removes what is left of one that does not.
func (n *Node) find(key string) error {
	r, found, err := n.c.Store.Server(key)
	if err != nil {
		return err
	}
	if !found {
		return n.end(key)
	}
	t, err := mounts.Read()
	if err != nil {
		return err
	}
	if len(t.At(n.c.Store.Point(key))) == 1 {
		if s, err := server.Adopt(r.Process, n.c.Store.Point(key)); err == nil {
			n.c.Log.Info("a server was found", "server", key, "process", r.Process.PID)
			n.setServer(key, s)
			return nil
		}
	}
	n.c.Log.Warn("a server has died", "server", key, "process", r.Process.PID)
	return n.end(key)
}

// healing bounds how many servers Heal starts at a time, because each may index.
const healing = 4

// Heal restarts servers that have volumes, are gone and need no credentials, and rebinds their
// volumes. It returns when all serve or have failed, or when ctx ends.
func (n *Node) Heal(ctx context.Context) {
	keys, err := n.c.Store.Servers()
	if err != nil {
		n.c.Log.Error("servers can't be read", "error", err)
	}
	places := make(chan struct{}, healing)
	var all sync.WaitGroup
	for _, key := range keys {
		r, found, err := n.c.Store.Server(key)
		if err != nil || !found || n.server(key) != nil {
			continue // the next publish reports a record that can't be read
		}
		if r.Credentials {
			n.c.Log.Warn("a server that has died needs its credentials: it is started when kubelet publishes its volume again", "server", key)
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if err := n.heal(ctx, key, r); err != nil {
				n.c.Log.Error("a server could not be started again", "server", key, "error", err)
			}
		})
	}
	all.Wait()
}

func (n *Node) heal(ctx context.Context, key string, r state.Server) error {
	s, err := n.acquire(ctx, key, volume.Volume{Dataset: r.Dataset, Args: r.Args})
	if err != nil {
		return err
	}
	if err := s.Ready(ctx); err != nil {
		return err
	}
	n.bindOthers(state.Volume{Server: key})
	return n.stopUnused(ctx, key) // its volumes may be gone by now
}
