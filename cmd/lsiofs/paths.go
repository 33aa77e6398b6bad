package main

import (
	"log/slog"
	"os"
	"strings"

	"github.com/lsiofs/lsiofs/fs"
)

// checkMountPoint refuses early, before a dataset is indexed for nothing, what
// a mount would refuse late.
func checkMountPoint(path, dataset string, log *slog.Logger) (string, error) {
	point, err := fs.PreparePoint(path, dataset, log)
	if err != nil {
		return "", codedf(exitMount, "%w", err)
	}
	return point, nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// shellQuote writes s so that a shell takes it as one word.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:=,@%+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
