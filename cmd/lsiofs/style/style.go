// Package style is how the HTML pages of lsiofs look: that of inspect --html, and that of
// top --listen.
package style

import _ "embed"

// CSS is the style sheet of all pages. It loads nothing, and has colours for a light and a dark
// scheme and for paper.
//
//go:embed style.css
var CSS string
