package s3

import (
	"os"
	"path/filepath"

	"gopkg.in/ini.v1"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// profile is what the files of the AWS command line say, beside credentials.
type profile struct {
	name     string
	chosen   bool // by AWS_PROFILE
	found    bool
	region   string
	endpoint string
	role     bool // it takes the role of another profile
	keys     bool // it has credentials, or says where they come from
	files    []string
}

// readProfile reads the profile that AWS_PROFILE names, or the one called default. Files
// that are not there say nothing; one that can't be read is a refusal.
func readProfile() (profile, error) {
	p := profile{name: os.Getenv("AWS_PROFILE"), chosen: os.Getenv("AWS_PROFILE") != ""}
	if p.name == "" {
		p.name = "default"
	}
	home, _ := os.UserHomeDir() // without one only files that the environment names are read
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
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return p, remote.Refuse("file of AWS profiles: %w", err)
		}
		parsed, err := ini.Load(text)
		if err != nil { // its text may have a line of the file in it
			return p, remote.Refuse("file of AWS profiles %s: a line of it is neither [SECTION] nor KEY = VALUE", path)
		}
		for _, name := range []string{file.section, p.name} {
			if section, err := parsed.GetSection(name); err == nil && len(section.Keys()) > 0 {
				p.take(section)
				break
			}
		}
	}
	return p, nil
}

func (p *profile) take(section *ini.Section) {
	p.found = true
	for key, to := range map[string]*string{"region": &p.region, "endpoint_url": &p.endpoint} {
		if value := section.Key(key).String(); value != "" {
			*to = value
		}
	}
	p.role = p.role || section.HasKey("role_arn")
	for _, key := range []string{"role_arn", "aws_access_key_id", "aws_secret_access_key", "credential_process", "sso_session", "sso_start_url", "sso_account_id"} {
		p.keys = p.keys || section.HasKey(key)
	}
}
