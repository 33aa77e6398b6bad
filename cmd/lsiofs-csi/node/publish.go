package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/mounts"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/server"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/state"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/volume"
)

// NodePublishVolume shows a volume at a target. If called again, it heals what is broken and
// changes nothing else: a running server keeps the credentials and the policy with which it was
// started.
func (n *Node) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	target, err := n.target(req.GetVolumeId(), req.GetTargetPath())
	if err != nil {
		return nil, err
	}
	if err := checkCapability(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	v, err := volume.Parse(req.GetVolumeContext(), req.GetSecrets(), n.c.Policy)
	if err == nil {
		err = resolve(v.Paths, n.c.Policy)
	}
	if err == nil {
		err = makeDirectories(v.Directories, n.c.Policy)
	}
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, v.Redact(err.Error()))
	}
	unlock, err := n.begin(ctx, target)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, n.c.Patience)
	defer cancel()
	r := state.Volume{
		ID: req.GetVolumeId(), Target: target, Server: v.Key(n.hashKey, n.c.Policy), Writable: v.Writable && !req.GetReadonly(),
		Pod: req.GetVolumeContext()["csi.storage.k8s.io/pod.name"], Namespace: req.GetVolumeContext()["csi.storage.k8s.io/pod.namespace"],
	}
	if err := n.publish(ctx, r, v); err != nil {
		return nil, asStatus(v, err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (n *Node) publish(ctx context.Context, r state.Volume, v volume.Volume) error {
	old, known, err := n.c.Store.Volume(r.Target)
	if err != nil {
		return err
	}
	if known {
		done, err := n.published(old, r, v)
		if err != nil || done {
			return err
		}
	}
	if !known || old != r {
		if err := n.c.Store.PutVolume(r); err != nil {
			return err
		}
	}
	if known && old.Server != r.Server {
		if err := n.stopUnused(ctx, old.Server); err != nil {
			return err
		}
	}
	err = n.serve(ctx, r, v)
	if err == nil || errors.Is(err, errWait) {
		return err
	}
	t, readErr := mounts.Read()
	if readErr != nil || len(t.At(r.Target)) > 0 {
		return errors.Join(err, readErr) // a pod uses it, and kubelet will unpublish it
	}
	// Kubelet need not unpublish a volume that failed for good.
	return errors.Join(err, n.forget(context.WithoutCancel(ctx), r))
}

// published compares a volume with the record for its target. done means that nothing has to be
// done although their servers differ.
func (n *Node) published(old, r state.Volume, v volume.Volume) (done bool, err error) {
	if old.ID != r.ID {
		return false, status.Errorf(codes.AlreadyExists, "target %s is taken by volume %s: unpublish that first", r.Target, old.ID)
	}
	was, found, err := n.c.Store.Server(old.Server)
	if err != nil {
		return false, err
	}
	if old.Writable != r.Writable || found && (was.Dataset != v.Dataset || !slices.Equal(was.Args, v.Args)) {
		return false, status.Errorf(codes.AlreadyExists, "volume %s is published at %s with other attributes already: unpublish it first", r.ID, r.Target)
	}
	s := n.server(old.Server)
	if old.Server == r.Server || s == nil || !s.Alive() || !s.Serving() {
		return false, nil
	}
	// Only the credentials or the node's policy have changed. A running container has the old
	// server's mount in any case.
	return true, n.bind(old)
}

// errWait is wrapped by errors that may not occur at the next call.
var errWait = errors.New("call again to wait for it")

// serve acquires the server of a recorded volume, waits until it serves, and binds it.
func (n *Node) serve(ctx context.Context, r state.Volume, v volume.Volume) error {
	s, err := n.acquire(ctx, r.Server, v)
	if err == nil {
		err = s.Ready(ctx)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		doing := "starting"
		if s != nil {
			doing = s.Doing()
		}
		return fmt.Errorf("the server of %s is not ready yet: %s: %w", v.Name(), doing, errWait)
	case err != nil:
		return err
	}
	if err := n.bind(r); err != nil {
		return err
	}
	n.bindOthers(r)
	return nil
}

// forget removes a volume's record. With the last volume it also removes the server.
func (n *Node) forget(ctx context.Context, r state.Volume) error {
	if err := mounts.Detach(r.Target); err != nil {
		return err
	}
	n.c.Step("unbound")
	if err := removeTarget(r.Target); err != nil {
		return err
	}
	n.c.Step("target removed")
	if err := n.c.Store.RemoveVolume(r.Target); err != nil {
		return err
	}
	return n.stopUnused(ctx, r.Server)
}

func removeTarget(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("target: %w", err)
	}
	return nil
}

// NodeUnpublishVolume removes a volume from a target. It is not an error if there is none.
func (n *Node) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	target, err := n.target(req.GetVolumeId(), req.GetTargetPath())
	if err != nil {
		return nil, err
	}
	unlock, err := n.begin(ctx, target)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := n.unpublish(ctx, target); err != nil {
		return nil, asStatus(volume.Volume{}, err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (n *Node) unpublish(ctx context.Context, target string) error {
	r, known, err := n.c.Store.Volume(target)
	if err != nil {
		return err
	}
	if known {
		return n.forget(ctx, r)
	}
	t, err := mounts.Read()
	if err != nil {
		return err
	}
	for _, m := range t.At(target) {
		if m.Type != mounts.FileSystem {
			return status.Errorf(codes.InvalidArgument, "target %s has a file system of type %s, which this driver has not mounted: unmount it by hand", target, m.Type)
		}
	}
	return errors.Join(mounts.Detach(target), removeTarget(target))
}

// begin begins a call for a target. The caller calls unlock at its end.
func (n *Node) begin(ctx context.Context, target string) (unlock func(), err error) {
	end, ok := n.calls.try(target)
	if !ok {
		return nil, status.Errorf(codes.Aborted, "another call for %s is under way", target)
	}
	release, err := n.targets.lock(ctx, target)
	if err != nil {
		end()
		return nil, status.FromContextError(err).Err()
	}
	return func() { release(); end() }, nil
}

// target checks the arguments that every call has and returns the target's path.
func (n *Node) target(id, path string) (string, error) {
	const maxBytes = 4096
	switch {
	case id == "":
		return "", status.Error(codes.InvalidArgument, "the volume's ID is missing")
	case path == "":
		return "", status.Error(codes.InvalidArgument, "the target's path is missing")
	case len(id) > maxBytes || len(path) > maxBytes:
		return "", status.Errorf(codes.InvalidArgument, "the volume's ID or target has more than %d bytes", maxBytes)
	}
	clean, below := n.real(path)
	if !below || strings.HasPrefix(clean+"/", n.c.Store.Dir()+"/") {
		return "", status.Errorf(codes.InvalidArgument, "target %s is not below kubelet's directory %s (--kubelet)", path, n.c.Kubelet)
	}
	return clean, nil
}

// real returns a path below kubelet's directory as it is in the kernel's table, because that
// directory may be a link. It accesses nothing below it.
func (n *Node) real(path string) (clean string, below bool) {
	rest, below := strings.CutPrefix(filepath.Clean(path), n.c.Kubelet+"/")
	return filepath.Join(n.kubelet, rest), below
}

func checkCapability(c *csi.VolumeCapability) error {
	switch {
	case c == nil:
		return status.Error(codes.InvalidArgument, "the volume's capability is missing")
	case c.GetBlock() != nil:
		return status.Error(codes.InvalidArgument, "a volume of lsiofs is a file system, not a block device")
	case len(c.GetMount().GetMountFlags()) > 0:
		return status.Errorf(codes.InvalidArgument, "mount options (%s) are not supported: write settings as volumeAttributes", strings.Join(c.GetMount().GetMountFlags(), ","))
	}
	return nil
}

// Exit codes of lsiofs that tell which side caused an error.
const (
	exitUsage      = 2
	exitDataset    = 3
	exitCheckpoint = 5
)

// asStatus converts an error to a CSI status without secrets.
func asStatus(v volume.Volume, err error) error {
	if s, is := status.FromError(err); is {
		return status.Error(s.Code(), v.Redact(s.Message()))
	}
	code := codes.Internal
	if f, is := errors.AsType[*server.Failure](err); is {
		switch f.Code {
		case exitUsage:
			code = codes.InvalidArgument
		case exitDataset, exitCheckpoint:
			code = codes.FailedPrecondition
		}
	} else if errors.Is(err, errWait) || errors.Is(err, context.DeadlineExceeded) {
		code = codes.DeadlineExceeded
	} else if errors.Is(err, context.Canceled) {
		code = codes.Canceled
	}
	return status.Error(code, v.Redact(err.Error()))
}

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
