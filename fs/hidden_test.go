package fs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A request without a thread, such as from another PID namespace, is not known to be by the thread
// that has unlinked the name.
func TestUnlinkedNameIsHiddenLongerOnlyFromKnownThread(t *testing.T) {
	h := &hiddenName{most: 0, mostOwn: time.Hour}
	h.hide(t.Context())
	require.False(t, h.isHidden(t.Context()))
}
