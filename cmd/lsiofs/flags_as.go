package main

import "github.com/lsiofs/lsiofs/pipeline/spec"

// asValue is the value of --as.
type asValue struct{ p *spec.As }

func (v asValue) String() string {
	if v.p == nil {
		return ""
	}
	return string(*v.p)
}

func (v asValue) Set(text string) (err error) {
	*v.p, err = spec.ParseAs(text)
	return err
}

func (v asValue) Type() string { return "type" }
