package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/identity"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/node"
)

// serve answers kubelet, and requests for metrics and health, until ctx ends or one of the
// listeners fails. Calls in progress are then cut off: kubelet repeats them.
func serve(ctx context.Context, o options, n *node.Node, log *slog.Logger) error {
	asked := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer func() { cancel(nil); all.Wait() }()
	run := func(work func() error) {
		all.Go(func() {
			if err := work(); err != nil {
				cancel(err)
			}
		})
	}
	plugin := grpc.NewServer(grpc.UnaryInterceptor(logged(log)))
	csi.RegisterIdentityServer(plugin, &identity.Service{Version: version()})
	csi.RegisterNodeServer(plugin, n)
	defer plugin.Stop()
	endpoint, err := listen(o.endpoint)
	if err != nil {
		return err
	}
	run(func() error { return plugin.Serve(endpoint) })
	run(func() error { n.Heal(ctx); return nil })

	for _, page := range []struct {
		address, path string
		handler       http.HandlerFunc
	}{
		{o.metrics, "/metrics", metricsPage(n)},
		{o.health, "/healthz", healthPage(o.endpoint)},
	} {
		if page.address == "" {
			continue
		}
		l, err := listen(page.address)
		if err != nil {
			return err
		}
		mux := http.NewServeMux()
		mux.HandleFunc("GET "+page.path, page.handler)
		s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
		defer s.Close()
		run(func() error {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}

	// Last, because kubelet calls from now on.
	if o.registration != "" {
		kubelet := grpc.NewServer()
		_, path, _ := strings.Cut(o.endpoint, "unix://")
		registration.RegisterRegistrationServer(kubelet, &identity.Registration{Endpoint: path, Log: log})
		defer kubelet.Stop()
		l, err := listen("unix://" + filepath.Join(o.registration, identity.Socket))
		if err != nil {
			return err
		}
		run(func() error { return kubelet.Serve(l) })
	}
	<-ctx.Done()
	if asked.Err() == nil {
		return context.Cause(ctx)
	}
	log.Info("the driver ends; servers and mounts stay")
	return nil
}

// listen listens on unix:///PATH, accessible only to this user, or on a port. An existing socket
// was left by a killed driver: the lock on the state guarantees that none is running.
func listen(address string) (net.Listener, error) {
	path, local := strings.CutPrefix(address, "unix://")
	if !local {
		return net.Listen("tcp", address)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(path, 0o600)
}

// logged logs calls by method, volume and outcome. The rest of a request is not logged, because it
// may be secret.
func logged(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		began := time.Now()
		resp, err := survive(ctx, req, handle)
		attributes := []any{"method", info.FullMethod, "code", status.Code(err).String(), "seconds", time.Since(began).Seconds()}
		if v, is := req.(interface{ GetVolumeId() string }); is {
			attributes = append(attributes, "volume", v.GetVolumeId())
		}
		switch {
		case status.Code(err) == codes.OK:
			log.Debug("call", attributes...)
		default:
			log.Warn("call", append(attributes, "error", status.Convert(err).Message())...)
		}
		return resp, err
	}
}

// survive turns a panic into an error: in a container all servers of the node end with the driver,
// and a bug here must not affect them.
func survive(ctx context.Context, req any, handle grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(codes.Internal, "a mistake in the driver, please report it: %v\n%s", p, debug.Stack())
		}
	}()
	return handle(ctx, req)
}

func metricsPage(n *node.Node) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := page(r.Context(), n)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = io.WriteString(w, text) // the client may be gone
	}
}

// probeTime is how long the driver may take to answer its own probe.
const probeTime = 2 * time.Second

// healthPage reports whether the driver answers on its own socket, as kubelet would call it.
func healthPage(endpoint string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeTime)
		defer cancel()
		if err := probe(ctx, endpoint); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	}
}

func probe(ctx context.Context, endpoint string) error {
	c, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	_, err = csi.NewIdentityClient(c).Probe(ctx, &csi.ProbeRequest{})
	if err := errors.Join(err, c.Close()); err != nil {
		return fmt.Errorf("the driver does not answer: %w", err)
	}
	return nil
}
