package storage

// Omission is a name that a listing has left out, and why.
type Omission struct{ Path, Reason string }

// MaxOmitted is the most omissions that a storage remembers.
const MaxOmitted = 10_000

// Reasons of omissions.
const (
	OmittedHidden = "its name begins with a dot"
	OmittedKey    = "its key is no path"
	OmittedLoop   = "it is a link that leads back to a directory above it"
	OmittedDead   = "it is a link that leads to nothing"
	OmittedKind   = "it is a pipe, a socket or a device"
)
