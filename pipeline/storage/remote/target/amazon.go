package target

import (
	"net/url"
	"strings"
)

// Amazon parses a host name of Amazon S3, in lower case and without a port: it returns the bucket
// and the region, each "" if the host does not contain it.
//
//	s3.amazonaws.com                     s3.eu-west-1.amazonaws.com        s3-eu-west-1.amazonaws.com
//	bucket.s3.eu-west-1.amazonaws.com    s3.dualstack.eu-west-1.amazonaws.com    s3.cn-north-1.amazonaws.com.cn
func Amazon(host string) (bucket, region string, ok bool) {
	rest, ok := strings.CutSuffix(strings.TrimSuffix(host, ".cn"), ".amazonaws.com")
	if !ok {
		return "", "", false
	}
	labels := strings.Split(rest, ".")
	n := len(labels)
	if isRegion(labels[n-1]) {
		region, n = labels[n-1], n-1
	}
	if n > 0 && region != "" && labels[n-1] == "dualstack" {
		n--
	}
	if n == 0 {
		return "", "", false
	}
	switch service := labels[n-1]; {
	case service == "s3" || service == "s3-fips" || service == "s3-accelerate":
	case region == "" && strings.HasPrefix(service, "s3-") && isRegion(service[len("s3-"):]):
		region = service[len("s3-"):]
	default:
		return "", "", false
	}
	return strings.Join(labels[:n-1], "."), region, true
}

// isRegion reports whether a label of a host name looks like a region: us-east-1.
func isRegion(label string) bool {
	return strings.Count(label, "-") >= 2 && isDigit(label[len(label)-1]) && !strings.HasPrefix(label, "s3-")
}

// bucketAt returns the name to write instead of the URL of a folder or pattern in a bucket at
// Amazon or Google, or "" for any other URL.
func bucketAt(host, raw string) string {
	path, err := url.PathUnescape(raw)
	if err != nil {
		return ""
	}
	bucket, region, ok := Amazon(host)
	switch {
	case host == "storage.googleapis.com" && path != "":
		return "s3+https://" + host + "/" + path
	case !ok || bucket == "" && path == "":
		return ""
	case bucket != "":
		path = bucket + "/" + path
	}
	name := "s3://" + path
	if region != "" {
		name += " --region " + region
	}
	return name
}
