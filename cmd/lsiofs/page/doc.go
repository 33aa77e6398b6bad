// Package page makes the HTML page of inspect --html from the results of packages inspect and
// readplan. The page is a single file and loads nothing.
package page
