// Package identity identifies the driver: to CSI clients (Identity), and to kubelet, with which it
// registers (Registration).
//
// Kubelet watches a directory for sockets. It asks the service at a new one for the plugin's kind,
// name and endpoint, and reports to it whether it was registered. Removing the socket ends the
// registration.
package identity

import (
	"context"
	"log/slog"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Driver is the driver's name, as in the CSIDriver object and in volumes.
const Driver = "lsiofs.csi"

// Socket is the name of the socket in kubelet's directory for registrations.
const Socket = Driver + "-reg.sock"

// Service is CSI's Identity service of a driver that is always ready. It has no controller: volumes
// are not created, attached or deleted.
type Service struct {
	csi.UnimplementedIdentityServer
	Version string
}

// GetPluginInfo returns the driver's name and version.
func (s *Service) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Driver, VendorVersion: s.Version}, nil
}

// GetPluginCapabilities returns none: there is only the node service.
func (s *Service) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

// Probe reports that the driver is ready.
func (s *Service) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// Registration is the service that kubelet calls.
type Registration struct {
	registration.UnimplementedRegistrationServer
	Endpoint string // path of CSI's socket, as kubelet sees it
	Log      *slog.Logger
}

// GetInfo returns the driver's name and endpoint.
func (r *Registration) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: Driver, Endpoint: r.Endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus logs whether the registration succeeded. Kubelet retries by itself.
func (r *Registration) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		r.Log.Info("kubelet has registered the driver", "name", Driver)
	} else {
		r.Log.Error("kubelet has not registered the driver", "name", Driver, "reason", s.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}
