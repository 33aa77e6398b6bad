package integration

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// document is a checkpoint as a user's program would see it.
type document struct {
	Version int                        `json:"version"`
	Dataset string                     `json:"dataset"`
	Order   map[string]json.RawMessage `json:"order"`
	Epoch   uint64                     `json:"epoch"`
	Done    []taken                    `json:"done"`
}

func documentOf(t testing.TB, b []byte) document {
	t.Helper()
	var d document
	require.NoError(t, json.Unmarshal(b, &d), "%s", b)
	return d
}

func (d document) json(t testing.TB) []byte {
	t.Helper()
	b, err := json.Marshal(d)
	require.NoError(t, err)
	return append(b, '\n')
}

// checkpoint reads the mount's document.
func (m *mount) checkpoint() document {
	m.t.Helper()
	return documentOf(m.t, m.read("checkpoint"))
}

// restore writes a document that must be accepted.
func (m *mount) restore(doc []byte) {
	m.t.Helper()
	require.NoError(m.t, os.WriteFile(m.path("checkpoint"), doc, 0o644))
}

// status is the part of status.json that tests check.
type status struct {
	LastRefusal struct {
		Reason string `json:"reason"`
	} `json:"last_checkpoint_refusal"`
	Refusals int `json:"checkpoint_refusals"`
}

func (m *mount) status() status {
	m.t.Helper()
	var s status
	require.NoError(m.t, json.Unmarshal(m.read("status.json"), &s))
	return s
}
