// Package style is the look of lsiofs's HTML pages: those of inspect --html and top --listen.
package style

import _ "embed"

// CSS is the style sheet of all pages. It loads nothing, and has colours for light and dark schemes
// and for print.
//
//go:embed style.css
var CSS string
