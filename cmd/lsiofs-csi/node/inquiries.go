package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodeGetInfo returns the node's name. It has no topology, because volumes may be anywhere.
func (n *Node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.c.Name}, nil
}

// NodeGetCapabilities returns the node's additional capabilities, which are statistics. Volumes are
// not staged.
func (n *Node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	var r csi.NodeGetCapabilitiesResponse
	for _, c := range []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_GET_VOLUME_STATS, csi.NodeServiceCapability_RPC_VOLUME_CONDITION} {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	return &r, nil
}

// died is the condition of a volume whose server has ended.
const died = "the server has died: readers get ENOTCONN; it is started again when the volume is published again, and containers that are started then can read"

// answerTime is how long a server may take to report its status.
const answerTime = 5 * time.Second

// progress is the part of status.json that statistics need.
type progress struct {
	Files []struct {
		Size      int64 `json:"size_bytes"`
		Delivered int64 `json:"delivered_bytes"`
	} `json:"files"`
	Errors uint64 `json:"errors"`
}

// NodeGetVolumeStats returns the bytes of the epoch's worker files (the first 64), how much of them
// was read, and whether the server is alive and reads succeeded.
func (n *Node) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	target, _ := n.real(req.GetVolumePath())
	v, found, err := n.c.Store.Volume(target)
	switch {
	case req.GetVolumeId() == "" || req.GetVolumePath() == "":
		return nil, status.Error(codes.InvalidArgument, "the volume's ID or path is missing")
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	case !found || v.ID != req.GetVolumeId():
		return nil, status.Errorf(codes.NotFound, "volume %s is not published at %s", req.GetVolumeId(), target)
	}
	s := n.server(v.Server)
	if s == nil || !s.Alive() {
		return abnormal(died), nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	text, err := s.Read(ctx, "status.json")
	switch {
	case errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.ECANCELED): // it is dying
		return abnormal(died), nil
	case err != nil:
		return abnormal(err.Error()), nil
	}
	var p progress
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, status.Errorf(codes.Internal, "status.json of server %s: %v", v.Server, err)
	}
	u := &csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES}
	for _, f := range p.Files {
		u.Total += f.Size
		u.Used += f.Delivered
	}
	u.Available = u.Total - u.Used
	r := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{u}, VolumeCondition: &csi.VolumeCondition{Message: "serving"}}
	if p.Errors > 0 {
		r.VolumeCondition = &csi.VolumeCondition{Abnormal: true, Message: fmt.Sprintf("%d reads have failed: see the file status", p.Errors)}
	}
	return r, nil
}

func abnormal(why string) *csi.NodeGetVolumeStatsResponse {
	return &csi.NodeGetVolumeStatsResponse{
		Usage:           []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES}},
		VolumeCondition: &csi.VolumeCondition{Abnormal: true, Message: why},
	}
}
