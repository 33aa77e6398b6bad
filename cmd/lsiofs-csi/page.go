package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/metrics"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/node"
)

// scrapeTime is how long all servers together may take to return their metrics. Prometheus waits 10
// s by default.
const scrapeTime = 3 * time.Second

// page returns the metrics of the driver and of all its servers. A server that does not answer has
// only lsiofs_csi_server_up 0.
func page(ctx context.Context, n *node.Node) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	volumes, err := n.Store().Volumes()
	if err != nil {
		return "", err
	}
	servers := n.Servers()
	texts := make([]string, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		if s.Server.Alive() && s.Server.Serving() {
			all.Go(func() {
				if text, err := s.Server.Read(ctx, "metrics"); err == nil {
					texts[i] = string(text)
				}
			})
		}
	}
	all.Wait()
	var own strings.Builder
	fmt.Fprintf(&own, "# HELP lsiofs_csi_volumes Volumes that are published on this node.\n# TYPE lsiofs_csi_volumes gauge\nlsiofs_csi_volumes %d\n", len(volumes))
	own.WriteString("# HELP lsiofs_csi_volume_info Which server a pod's volume is of.\n# TYPE lsiofs_csi_volume_info gauge\n")
	for _, v := range volumes {
		fmt.Fprintf(&own, "lsiofs_csi_volume_info{%s,%s,%s,%s} 1\n", metrics.Label("server", v.Server), metrics.Label("volume", v.ID),
			metrics.Label("namespace", v.Namespace), metrics.Label("pod", v.Pod))
	}
	own.WriteString("# HELP lsiofs_csi_server_up Whether a server answers.\n# TYPE lsiofs_csi_server_up gauge\n")
	pages := map[string]string{}
	for i, s := range servers {
		up := 0
		if texts[i] != "" {
			up, pages[s.Key] = 1, texts[i]
		}
		fmt.Fprintf(&own, "lsiofs_csi_server_up{%s} %d\n", metrics.Label("server", s.Key), up)
	}
	return own.String() + metrics.Merge(pages), nil
}
