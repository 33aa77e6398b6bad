// Package identity says who the driver is: to whoever speaks CSI (Identity), and to kubelet, which
// it asks to be registered with (Registration).
//
// Kubelet watches a directory for sockets. It asks the service behind a new one for the plugin's kind, name and
// endpoint, and tells it whether it was registered. A socket that is gone ends the registration.
package identity

import (
	"context"
	"log/slog"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Driver is the driver's name: that of the CSIDriver object, and of volumes' driver.
const Driver = "lsiofs.csi"

// Socket is the name of the socket in kubelet's directory for registrations.
const Socket = Driver + "-reg.sock"

// Service is CSI's Identity service, of a driver that is ready when it answers. It has no controller: volumes are
// not made, attached or deleted.
type Service struct {
	csi.UnimplementedIdentityServer
	Version string
}

// GetPluginInfo names the driver.
func (s *Service) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Driver, VendorVersion: s.Version}, nil
}

// GetPluginCapabilities says that there is nothing beside the node's service.
func (s *Service) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

// Probe says that the driver is ready.
func (s *Service) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// Registration is what kubelet asks.
type Registration struct {
	registration.UnimplementedRegistrationServer
	Endpoint string // path of CSI's socket, as kubelet sees it
	Log      *slog.Logger
}

// GetInfo names the driver and its endpoint.
func (r *Registration) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: Driver, Endpoint: r.Endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus is told whether it went well. Kubelet tries again by itself.
func (r *Registration) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		r.Log.Info("kubelet has registered the driver", "name", Driver)
	} else {
		r.Log.Error("kubelet has not registered the driver", "name", Driver, "reason", s.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}
