package target

import (
	"fmt"
	"net"
	"strings"
)

// Bucket is a location in a bucket.
type Bucket struct {
	// Endpoint is the URL of the service if the name contains it, otherwise "".
	Endpoint string
	Name     string // of the bucket
	// Key is an object or a folder, without slashes at its ends; "" is the whole bucket. It is a
	// folder if Folder is set or if there is a Pattern; otherwise only the service knows.
	Key    string
	Folder bool
	// Pattern selects objects by what follows Key and a slash; "" selects all.
	Pattern string
}

// patternSigns are the characters that make a component of a path a pattern.
const patternSigns = `*?[{\`

// Root returns the URL of the folder, or of what may be one.
func (b Bucket) Root() string {
	root := "s3://" + b.Name
	if b.Endpoint != "" {
		root = "s3+" + b.Endpoint + "/" + b.Name
		if _, host, _ := strings.Cut(b.Endpoint, "://"); strings.Contains(host, "/") { // otherwise it would be ambiguous where the bucket begins
			root = "s3+" + b.Endpoint + "//" + b.Name
		}
	}
	if b.Key == "" {
		return root
	}
	return root + "/" + b.Key
}

// Split returns the folder that contains the object Key, and the object's name there.
func (b Bucket) Split() (folder Bucket, name string) {
	i := strings.LastIndexByte(b.Key, '/')
	return Bucket{Endpoint: b.Endpoint, Name: b.Name, Key: b.Key[:max(i, 0)], Folder: true}, b.Key[i+1:]
}

func parseBucket(rest string) (Bucket, error) {
	name, path, _ := strings.Cut(rest, "/")
	if strings.Contains(name, "@") {
		return Bucket{}, fmt.Errorf("s3:// takes no user name and password: credentials come from the environment, from ~/.aws or from the machine")
	}
	if strings.HasPrefix(strings.ToLower(rest), "arn:") {
		return Bucket{}, fmt.Errorf("s3:// takes no ARN: give the alias of the access point instead of a bucket's name")
	}
	if err := checkBucketName(name); err != nil {
		return Bucket{}, err
	}
	b := Bucket{Name: name, Folder: path == "" || strings.HasSuffix(path, "/")}
	path = strings.TrimSuffix(path, "/")
	if path == "" {
		return b, nil
	}
	if err := checkComponents(path, "the path in s3://"+name); err != nil {
		return Bucket{}, err
	}
	components := strings.Split(path, "/")
	plain := 0
	for plain < len(components) && !strings.ContainsAny(components[plain], patternSigns) {
		plain++
	}
	b.Key = strings.Join(components[:plain], "/")
	if plain == len(components) {
		return b, nil
	}
	if b.Folder {
		return Bucket{}, fmt.Errorf("the pattern in s3://%s ends with a slash, and chooses objects: end it with /** for all that lies below", name)
	}
	b.Folder, b.Pattern = true, strings.Join(components[plain:], "/")
	return b, nil
}

// checkBucketName accepts the names that S3 and compatible servers allow.
func checkBucketName(name string) error {
	if name == "" {
		return fmt.Errorf("s3:// has no bucket: write s3://BUCKET or s3://BUCKET/PREFIX")
	}
	if strings.ContainsAny(name, patternSigns+"]}") {
		return fmt.Errorf("s3://%s: the name of the bucket can't be a pattern", name)
	}
	if host, _, err := net.SplitHostPort(name); err == nil {
		return fmt.Errorf("s3://%s has a port: write s3://BUCKET, and give the server by --endpoint http://%s:…", name, host)
	}
	for i := range len(name) {
		if c := name[i]; !isLetter(c) && !isDigit(c) && c != '.' && c != '-' && c != '_' {
			return fmt.Errorf("s3://%s: a bucket's name has letters, digits, dots, hyphens and underscores alone", name)
		}
	}
	if len(name) < 3 || len(name) > 255 || name[0] == '.' || name[0] == '-' || strings.Contains(name, "..") {
		return fmt.Errorf("s3://%s: that is no name of a bucket", name)
	}
	return nil
}
