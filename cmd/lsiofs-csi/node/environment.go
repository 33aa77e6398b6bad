package node

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/volume"
)

// inherited are the driver's environment variables that every server gets.
var inherited = []string{
	"PATH", "TMPDIR", "TZ", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "GOMAXPROCS", "GODEBUG",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}

// dataCache returns the directory where data from services is kept.
func (n *Node) dataCache() string { return filepath.Join(n.c.Cache, "data") }

// environment returns a server's environment. Without credentials of its own, a server may use the
// driver's identity (a role of the node or of the service account); with them it may not.
func (n *Node) environment(v volume.Volume) []string {
	own := len(v.Environment) > 0
	var env []string
	for _, variable := range n.c.Environment {
		name, _, _ := strings.Cut(variable, "=")
		if slices.Contains(inherited, name) || !own && (name == "HOME" || strings.HasPrefix(name, "AWS_")) {
			env = append(env, variable)
		}
	}
	if own {
		env = append(env, "AWS_EC2_METADATA_DISABLED=true")
	}
	// If this is set, even to "", a server refuses URLs that lead to this machine.
	env = append(env, "LSIOFS_ALLOW_URL="+strings.Join(n.c.Policy.AllowURLs, " "))
	// Named paths have been checked already; links in a dataset are followed only by its server.
	env = append(env, "LSIOFS_NEVER_READ="+strings.Join(n.c.Policy.Never, "\n"))
	return append(append(env, "XDG_CACHE_HOME="+n.c.Cache), v.Environment...)
}
