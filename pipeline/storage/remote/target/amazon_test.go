package target

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Hosts below amazonaws.com that can be anyone's, such as machines and load balancers, are not S3.
func TestAmazonS3HostsAreRecognized(t *testing.T) {
	for host, want := range map[string][2]string{
		"s3.amazonaws.com":                            {"", ""},
		"s3.eu-west-1.amazonaws.com":                  {"", "eu-west-1"},
		"s3-eu-west-1.amazonaws.com":                  {"", "eu-west-1"},
		"bucket.s3-eu-west-1.amazonaws.com":           {"bucket", "eu-west-1"},
		"bucket.s3.amazonaws.com":                     {"bucket", ""},
		"a.b.s3.us-gov-west-1.amazonaws.com":          {"a.b", "us-gov-west-1"},
		"bucket.s3.dualstack.us-east-2.amazonaws.com": {"bucket", "us-east-2"},
		"s3-fips.us-east-1.amazonaws.com":             {"", "us-east-1"},
		"bucket.s3-accelerate.amazonaws.com":          {"bucket", ""},
		"s3.cn-north-1.amazonaws.com.cn":              {"", "cn-north-1"},
	} {
		bucket, region, ok := Amazon(host)
		require.True(t, ok, host)
		require.Equal(t, want, [2]string{bucket, region}, host)
	}
	for _, host := range []string{
		"amazonaws.com", "s3.example.com", "ec2-1-2-3-4.eu-west-1.compute.amazonaws.com", "ec2-1-2-3-4.compute-1.amazonaws.com",
		"s3.eu-west-1.elb.amazonaws.com", "eu-west-1.amazonaws.com", "dualstack.eu-west-1.amazonaws.com", "s3.amazonaws.com.example.com", ".amazonaws.com", "s3-x.amazonaws.com",
	} {
		_, _, ok := Amazon(host)
		require.False(t, ok, host)
	}
}
