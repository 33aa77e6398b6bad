package s3

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/web"
)

// profile is the configuration in the files of the AWS command line.
type profile struct {
	name   string
	chosen bool // by the environment
	found  bool
	// awaited means that it has no keys yet, and may get some: the file of keys that the
	// environment names is missing or empty, or all files are, though the environment names one of
	// them, or a profile.
	awaited  bool
	region   string
	endpoint string
	// addressing is addressing_style: where requests name the bucket.
	addressing string
	// unplaced means that endpoints from the environment and from profiles must not be used.
	unplaced bool
	bundle   string  // of certificates
	values   section // all of its settings
	files    []string
}

// readProfile reads the profile that the environment names, or the default one. Missing files are
// ignored; a file that can't be read is an error.
func readProfile() (profile, error) {
	name := cmp.Or(variable("AWS_PROFILE"), variable("AWS_DEFAULT_PROFILE"))
	p := profile{name: cmp.Or(name, "default"), chosen: name != "", values: section{}}
	home, _ := os.UserHomeDir() // without one only files that the environment names are read
	services := map[string]section{}
	unwritten, named, keyless := 0, false, false
	for _, file := range []struct{ variable, name, section string }{
		{"AWS_CONFIG_FILE", "config", "profile " + p.name}, {"AWS_SHARED_CREDENTIALS_FILE", "credentials", p.name},
	} {
		path := os.Getenv(file.variable)
		if path == "" && home != "" {
			path = filepath.Join(home, ".aws", file.name)
		}
		if path == "" {
			continue
		}
		p.files = append(p.files, path)
		if !written(path) {
			unwritten++
			if os.Getenv(file.variable) != "" {
				named, keyless = true, file.name == "credentials"
			}
			continue
		}
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return p, remote.Refuse("file of AWS profiles: %w", err)
		}
		parsed, err := parseINI(string(text))
		if err != nil {
			return p, remote.Refuse("file of AWS profiles %s: %w", path, err)
		}
		for _, name := range []string{file.section, p.name} {
			if s := parsed[name]; len(s) > 0 {
				p.take(s)
				break
			}
		}
		if file.name == "config" {
			services = parsed
		}
	}
	p.awaited = !p.hasKeys() && (keyless || (named || p.chosen) && unwritten == len(p.files))
	p.region, p.bundle = p.values.word("region"), p.values.word("ca_bundle")
	p.endpoint = p.values.word("endpoint_url")
	p.addressing = strings.ToLower(p.values.nested("s3").word("addressing_style"))
	if name := p.values.word("services"); name != "" {
		p.endpoint = cmp.Or(services["services "+name].nested("s3").word("endpoint_url"), p.endpoint)
	}
	p.unplaced = strings.EqualFold(cmp.Or(variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"), p.values.word("ignore_configured_endpoint_urls")), "true")
	if p.unplaced {
		p.endpoint = ""
	}
	return p, nil
}

// staticKeys are the settings with the keys themselves. They belong together: keys from different
// files are never mixed.
var staticKeys = []string{"aws_access_key_id", "aws_secret_access_key", "aws_session_token"}

// take adds the profile's settings from another file, which take precedence.
func (p *profile) take(s section) {
	p.found = true
	if s["aws_access_key_id"] != "" && s["aws_secret_access_key"] != "" {
		for _, key := range staticKeys {
			delete(p.values, key)
		}
	}
	for key, value := range s {
		if value != "" {
			p.values[key] = value
		}
	}
}

// hasKeys reports whether the profile has credentials, or names their source.
func (p profile) hasKeys() bool {
	for _, key := range []string{"role_arn", "aws_access_key_id", "aws_secret_access_key", "credential_process", "sso_session", "sso_start_url", "sso_account_id"} {
		if p.values[key] != "" {
			return true
		}
	}
	return false
}

// Trust returns the transport settings for S3 services: the certificates named by the flag
// --ca-file, or else by the environment or the profile.
func Trust(caFile string) (web.Settings, error) {
	file, from := variable("AWS_CA_BUNDLE"), "AWS_CA_BUNDLE"
	switch {
	case caFile != "":
		file, from = caFile, ""
	case file == "":
		p, err := readProfile()
		if err != nil {
			return web.Settings{}, err
		}
		file, from = p.bundle, "ca_bundle of the profile"
	}
	return web.Settings{CAFile: file, CAFrom: from}, nil
}
