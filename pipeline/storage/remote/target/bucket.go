package target

import (
	"fmt"
	"net"
	"strings"
)

// Bucket is a place in a bucket.
type Bucket struct {
	// Endpoint is the URL of the service that the name says; "" where it says none.
	Endpoint string
	Name     string // of the bucket
	// Key is an object or a folder, without slashes at its ends; "" is the whole bucket.
	// It is a folder where Folder says so and where there is a Pattern; otherwise the
	// service knows.
	Key    string
	Folder bool
	// Pattern chooses objects by what follows Key and a slash; "" chooses all.
	Pattern string
}

// patternSigns make a component of a path a pattern.
const patternSigns = `*?[{\`

// Root is the URL of the folder, or of what may be one.
func (b Bucket) Root() string {
	root := "s3://" + b.Name
	if b.Endpoint != "" {
		root = "s3+" + b.Endpoint + "/" + b.Name
		if _, host, _ := strings.Cut(b.Endpoint, "://"); strings.Contains(host, "/") { // else nobody could tell where the bucket begins
			root = "s3+" + b.Endpoint + "//" + b.Name
		}
	}
	if b.Key == "" {
		return root
	}
	return root + "/" + b.Key
}

// Split gives the folder that the object Key lies in, and the object's name there.
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

// checkBucketName lets through what S3 and servers that are like it allow.
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
