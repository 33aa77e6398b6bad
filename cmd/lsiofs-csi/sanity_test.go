package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/identity"
)

// controller provides the volumes that csi-sanity needs. The driver has no controller, because
// datasets exist before it. A volume of this one has the attributes of a dataset, and a name.
type controller struct {
	csi.UnimplementedControllerServer
	attributes map[string]string
	mu         sync.Mutex
	volumes    map[string]bool
}

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{
		Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}},
	}}}, nil
}

func (c *controller) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if r.GetName() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "the name or the capabilities are missing")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.volumes[r.GetName()] = true
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: r.GetName(), VolumeContext: c.attributes}}, nil
}

func (c *controller) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "the ID is missing")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.volumes, r.GetVolumeId())
	return &csi.DeleteVolumeResponse{}, nil
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.GetVolumeId() == "" || len(r.GetVolumeCapabilities()) == 0:
		return nil, status.Error(codes.InvalidArgument, "the ID or the capabilities are missing")
	case !c.volumes[r.GetVolumeId()]:
		return nil, status.Error(codes.NotFound, "there is no such volume")
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: r.GetVolumeCapabilities()}}, nil
}

// who is the driver's own identity, plus the controller that it lacks.
type who struct{ identity.Service }

func (w *who) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{
		Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}},
	}}}, nil
}

// program finds a program installed by integration/check.
func program(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	path, err := filepath.Abs(filepath.Join("../../integration/servers/bin", name))
	require.NoError(t, err)
	if _, err := os.Stat(path); err != nil {
		missing(t, name+" is not there; integration/check installs what the tests use")
	}
	return path
}

func TestCSISanityPassesWithRealMounts(t *testing.T) {
	sanity := program(t, "csi-sanity")
	d := startDriver(t)
	l, err := net.Listen("unix", d.path("controller.sock"))
	require.NoError(t, err)
	s := grpc.NewServer()
	csi.RegisterIdentityServer(s, &who{identity.Service{Version: "test"}})
	csi.RegisterControllerServer(s, &controller{attributes: map[string]string{"dataset": dataset(t), "workers": "2"}, volumes: map[string]bool{}})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() { s.Stop(); require.NoError(t, <-served) }()

	cmd := exec.Command(sanity, "--csi.endpoint", d.path("csi.sock"), "--csi.controllerendpoint", d.path("controller.sock"),
		"--csi.mountdir", d.path("kubelet", "target"), "--csi.stagingdir", d.path("kubelet", "staging"), "--ginkgo.no-color", "--ginkgo.v")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	passed := regexp.MustCompile(`(\d+) Passed`).FindSubmatch(out)
	require.NotNil(t, passed, "%s", out)
	t.Logf("csi-sanity: %s", passed[0])
	d.requireNothingLeft()
}
