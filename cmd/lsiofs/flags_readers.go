package main

import (
	"fmt"
	"os/user"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/fs"
)

// readerUsers is the value of --readers: user names or numbers, separated by commas, or "all". The
// flag may be repeated.
type readerUsers struct {
	fs.Readers
	text []string
}

func (r *readerUsers) given() bool    { return len(r.text) > 0 }
func (r *readerUsers) String() string { return strings.Join(r.text, ",") }
func (*readerUsers) Type() string     { return "users" }

func (r *readerUsers) Set(text string) error {
	for name := range strings.SplitSeq(text, ",") {
		if name == "all" {
			r.All = true
			continue
		}
		id := name
		if u, err := user.Lookup(name); err == nil {
			id = u.Uid
		}
		uid, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return fmt.Errorf("there is no user %q: give the name of a user of this machine, a user's number, or all", name)
		}
		r.Users = append(r.Users, uint32(uid))
	}
	r.text = append(r.text, text)
	return nil
}
