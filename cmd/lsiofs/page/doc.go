// Package page makes the HTML page of inspect --html from what packages inspect and
// readplan find out. The page is one file that loads nothing.
package page
