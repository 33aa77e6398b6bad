package target

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBucketNamesAreParsed(t *testing.T) {
	for name, want := range map[string]Bucket{
		"s3://bucket":                          {Name: "bucket", Folder: true},
		"S3://bucket/":                         {Name: "bucket", Folder: true},
		"s3+https://Host:9/bucket/a b/x.tar":   {Endpoint: "https://host:9", Name: "bucket", Key: "a b/x.tar"},
		"S3+http://127.0.0.1/bucket":           {Endpoint: "http://127.0.0.1", Name: "bucket", Folder: true},
		"s3+http://h/bucket/a/*.tar":           {Endpoint: "http://h", Name: "bucket", Key: "a", Folder: true, Pattern: "*.tar"},
		"s3+https://h/a/v1/s3//bucket/train/":  {Endpoint: "https://h/a/v1/s3", Name: "bucket", Key: "train", Folder: true},
		"s3://bucket/a::b.tar":                 {Name: "bucket", Key: "a::b.tar"},
		"s3://bucket/train":                    {Name: "bucket", Key: "train"},
		"s3://bucket/train/":                   {Name: "bucket", Key: "train", Folder: true},
		"s3://bucket/a/b/x.tar":                {Name: "bucket", Key: "a/b/x.tar"},
		"s3://bucket/a b/ü%20+.tar":            {Name: "bucket", Key: "a b/ü%20+.tar"},
		"s3://bucket/*.tar":                    {Name: "bucket", Folder: true, Pattern: "*.tar"},
		"s3://bucket/a/b/x-{000..146}.tar":     {Name: "bucket", Key: "a/b", Folder: true, Pattern: "x-{000..146}.tar"},
		"s3://bucket/a/**/x?[0-9].tar":         {Name: "bucket", Key: "a", Folder: true, Pattern: "**/x?[0-9].tar"},
		`s3://bucket/a\*/b/*.tar`:              {Name: "bucket", Folder: true, Pattern: `a\*/b/*.tar`},
		"s3://a_B.c/x":                         {Name: "a_B.c", Key: "x"},
		"s3://bucket--use1-az4--x-s3/x.tar":    {Name: "bucket--use1-az4--x-s3", Key: "x.tar"},
		"s3://bucket/x.tar#1":                  {Name: "bucket", Key: "x.tar#1"},
		"s3://bucket/a://b":                    {}, // an empty component
		"s3://bucket/tr@in":                    {Name: "bucket", Key: "tr@in"},
		"s3://bucket/.hidden/x.tar":            {Name: "bucket", Key: ".hidden/x.tar"},
		"s3://bucket/a/{train,test}/x.tar":     {Name: "bucket", Key: "a", Folder: true, Pattern: "{train,test}/x.tar"},
		"s3://bucket/{train/a,test/b}/x-*.tar": {Name: "bucket", Folder: true, Pattern: "{train/a,test/b}/x-*.tar"},
	} {
		require.True(t, IsRemote(name), name)
		got, err := Parse(name)
		if want == (Bucket{}) {
			require.Error(t, err, name)
			continue
		}
		require.NoError(t, err, name)
		require.Nil(t, got.Web)
		require.Equal(t, want, *got.Bucket, name)
	}
}

func TestWebServerFilesAreNamedByRanges(t *testing.T) {
	for name, want := range map[string]struct {
		root  string
		paths []string
		list  bool
	}{
		"https://host/x.tar":                      {"https://host", []string{"x.tar"}, false},
		"HTTPS://Host:443/a/x.tar":                {"https://host/a", []string{"x.tar"}, false},
		"http://host:8080/a/b/x.tar":              {"http://host:8080/a/b", []string{"x.tar"}, false},
		"http://[::1]:80/x.tar":                   {"http://[::1]", []string{"x.tar"}, false},
		"http://[::1]:81/x.tar":                   {"http://[::1]:81", []string{"x.tar"}, false},
		"https://host/a/x-{8..10}.tar":            {"https://host/a", []string{"x-8.tar", "x-9.tar", "x-10.tar"}, false},
		"https://host/a/x-{08..10}.tar":           {"https://host/a", []string{"x-08.tar", "x-09.tar", "x-10.tar"}, false},
		"https://host/a/{0..1}/x-{1..2}.tar":      {"https://host/a", []string{"0/x-1.tar", "0/x-2.tar", "1/x-1.tar", "1/x-2.tar"}, false},
		"https://host/a%2Db/%C3%BC%20x.tar":       {"https://host/a-b", []string{"ü x.tar"}, false},
		"https://host/ü b/%2A%5B%7B.tar":          {"https://host/%C3%BC%20b", []string{"*[{.tar"}, false},
		"https://host/list.txt?sig=secret":        {"https://host", []string{"list.txt"}, true},
		"https://host/a/shards.json":              {"https://host/a", []string{"shards.json"}, true},
		"https://user:secret@host/x.tar?t=secret": {"https://host", []string{"x.tar"}, false},
		"https://host/list-{0..1}.txt":            {"https://host", []string{"list-0.txt", "list-1.txt"}, false},
	} {
		got, err := Parse(name)
		require.NoError(t, err, name)
		require.Nil(t, got.Bucket)
		require.Equal(t, want.root, got.Web.Root(), name)
		var paths []string
		for _, n := range got.Web.Names {
			paths = append(paths, n.Path)
			require.Equal(t, got.Web.Query, n.Query)
			require.EqualValues(t, -1, n.SizeBytes)
		}
		require.Equal(t, want.paths, paths, name)
		require.Equal(t, want.list, got.Web.List, name)
		require.NotContains(t, got.Web.Root(), "secret")
	}
}

// Servers interpret + and %2B differently.
func TestPathsAreSentAsUserWroteThem(t *testing.T) {
	got, err := Parse("https://host/a/x+y%2Bz ü=%7e.tar?a={b}&c=d?e")
	require.NoError(t, err)
	require.Equal(t, Name{Path: "x+y+z ü=~.tar", Raw: "x+y%2Bz%20%C3%BC=%7e.tar", Query: "a={b}&c=d?e", SizeBytes: -1}, got.Web.Names[0])

	got, err = Parse("https://us%3Aer:pa%40ss%2F@host/x.tar")
	require.Error(t, err, "a colon in a user name can't be sent")
	require.Nil(t, got.Web)
	got, err = Parse("https://user:pa%40ss%2F:@host/x.tar")
	require.NoError(t, err)
	password, _ := got.Web.User.Password()
	require.Equal(t, "pa@ss/:", password)
	require.Equal(t, "host", got.Web.Host)
}

// refusals are names that are not targets, with a word from the error.
var refusals = map[string]string{
	"s3://":                            "no bucket",
	"s3:///x":                          "no bucket",
	"s3://ab":                          "no name of a bucket",
	"s3://b*/x":                        "can't be a pattern",
	"s3://buck{et":                     "can't be a pattern",
	"s3://id:secret@bucket/x":          "credentials come from",
	"s3://bucket:9000/x":               "--endpoint",
	"s3://bücket/x":                    "letters, digits",
	"s3://arn:aws:s3:us:1:ap/x":        "alias",
	"s3://bucket//x":                   "two slashes",
	"s3://bucket/a//x":                 "two slashes",
	"s3://bucket/a/../x":               `".."`,
	"s3://bucket/./x":                  `"."`,
	"s3://bucket/x-*/":                 "ends with a slash",
	"s3://bucket/a\nb":                 "control character",
	"gs://bucket/x":                    "--endpoint",
	"az://c/x":                         "SAS",
	"s3a://bucket":                     "s3://",
	"file:///x":                        "path alone",
	"ftp://host/x":                     "not supported",
	"s3+https://":                      "no URL of a server",
	"s3+https://host":                  "s3+https://HOST/BUCKET/PREFIX",
	"s3+https://u:secret@host/b":       "credentials come from",
	"s3+https://host/bucket/a//bbb//c": "two slashes",
	"s3+https://host/a/../b//bucket":   `".."`,
	"s3+https://host/ü//bucket":        "other signs",
	"s3+http://h//bucket/x.tar":        "no bucket",
	"s3+ftp://host/bucket":             "not supported",
	"simplecache::s3://bucket/x":       "begins with simplecache::",
	"s3://bucket/a::s3://bucket/b":     "--mix",
	"https://h/a.tar::https://h/b":     "--mix",
	"https://bucket.s3.amazonaws.com/a%20b/?secret": "write s3://bucket/a b/, which",
	"https://s3.eu-west-1.amazonaws.com/bucket/a/":  "s3://bucket/a/ --region eu-west-1",
	"https://bucket.s3.eu-west-1.amazonaws.com":     "s3://bucket/ --region eu-west-1",
	"https://bucket.s3.amazonaws.com/a/*.tar":       "s3://bucket/a/*.tar",
	"https://storage.googleapis.com/bucket/a/":      "s3+https://storage.googleapis.com/bucket/a/",
	"https://s3.amazonaws.com/":                     "does not list",
	"https://minio.local/bucket/a/":                 "s3+https://minio.local/BUCKET/PREFIX",
	"hf://datasets/a/b":                             "not supported",
	"/data/train":                                   "scheme",
	"https://":                                      "no server",
	"https:///x.tar":                                "no server",
	"https://host":                                  "does not list",
	"https://host/":                                 "does not list",
	"https://host/train/?x=secret":                  "does not list",
	"https://host/*.tar?x=secret":                   "%2A",
	"https://host/[0-9].tar":                        "%5B",
	`https://host/a\b.tar`:                          "%5C",
	"https://host/{a,b}.tar":                        "%7B",
	"https://host/{0..3.tar":                        "%7B",
	"https://host/0..3}.tar":                        "%7D",
	"https://host/{}.tar":                           "%7B",
	"https://host/{3..0}.tar":                       "{0..3}",
	"https://host/{0..99999999999}":                 "too large",
	"https://host/{0..1048576}.tar":                 "more than",
	"https://h/{0..2000}{0..2000}":                  "more than",
	"https://host/a//x.tar":                         "two slashes",
	"https://host/a/../x.tar":                       `".."`,
	"https://host/a/%2e%2E/x.tar":                   `".."`,
	"https://host/a%2Fb.tar":                        "%2F",
	"https://host/a%00b.tar":                        "%00",
	"https://host/a%zz.tar":                         "%25",
	"https://host/100%.tar":                         "%25",
	"https://host/x.tar#1":                          "%23",
	"https://host/x.tar?sig=secret#":                "%23",
	"https://host/x.tar?sig=secret ":                "%20",
	"http://u:secret@host/x.tar":                    "https://",
	"https://u:%secret@host/x.tar":                  "percent-encoded",
	"https://u:secret/a@host/x.tar":                 "no server",
	"https://u:sec ret/@host/x.tar":                 "no server",
	"https://host:port/x.tar":                       "no server",
	"https://host:/x.tar":                           "no server",
	"https://{a..b}/x.tar":                          "no server",
	"https://ho st/x.tar":                           "no server",
}

func TestRefusalsSuggestCorrectionWithoutSecrets(t *testing.T) {
	for name, word := range refusals {
		got, err := Parse(name)
		require.ErrorContains(t, err, word, name)
		require.Equal(t, Target{}, got)
		require.NotContains(t, err.Error(), "secret", name)
		require.NotContains(t, err.Error(), "sec ret", name)
	}
}

func TestPathsAreNotRemote(t *testing.T) {
	for _, path := range []string{"", "/data/train", "train", "./s3:", "a/b://c", "3s://x", "://x", "s3:/bucket", "a b://c"} {
		require.False(t, IsRemote(path), path)
	}
}

func web(t testing.TB, name string) Web {
	got, err := Parse(name)
	require.NoError(t, err)
	return *got.Web
}

func TestListsNameFilesBelowTheirFolder(t *testing.T) {
	w := web(t, "https://u:p@host/a%2Db/list.txt?sig=1")
	text := strings.Join([]string{
		"\ufeff# shards", "", " x.tar\r", "./sub/y%20z.tar?sig=2", "https://HOST:443/a-b/{1..2}.tar", "/a%2Db/last.tar?",
	}, "\n")
	names, err := w.ParseText(text)
	require.NoError(t, err)
	require.Equal(t, []Name{
		{Path: "x.tar", Raw: "x.tar", Query: "sig=1", SizeBytes: -1},
		{Path: "sub/y z.tar", Raw: "sub/y%20z.tar", Query: "sig=2", SizeBytes: -1},
		{Path: "1.tar", Raw: "1.tar", Query: "sig=1", SizeBytes: -1},
		{Path: "2.tar", Raw: "2.tar", Query: "sig=1", SizeBytes: -1},
		{Path: "last.tar", Raw: "last.tar", Query: "", SizeBytes: -1},
	}, names)

	for text, word := range map[string]string{
		"":                               "names no files",
		"x.tar\nx.tar":                   "line 2: x.tar is named twice",
		"x.tar\n%78.tar":                 "named twice",
		"http://host/a-b/x.tar":          "anybody on the way",
		"https://u:secret@host/a-b/x":    "user name",
		"https://other":                  "empty",
		"https:///x.tar":                 "no server",
		"https:/other/x.tar":             "https://HOST/PATH",
		"./https:/other/x.tar":           "https://HOST/PATH",
		"https://b/x\nhttps://B:443/%78": "https:/b/x is named twice",
		"../x.tar":                       `".."`,
		"a/%2e./x.tar":                   `".."`,
		"*.tar":                          "%2A",
		"s3://bucket/x.tar":              "names files at web servers",
		"x.tar?sig=secret with a space":  "space",
	} {
		_, err := w.ParseText(text)
		require.ErrorContains(t, err, word, text)
		require.NotContains(t, err.Error(), "secret")
	}
}

// Their paths distinguish them from all others, and the list's own query is sent only to the list's
// server.
func TestListsNameFilesOfOtherFoldersAndServers(t *testing.T) {
	w := web(t, "https://u:p@host/d/list.txt?sig=1")
	names, err := w.ParseText("https://b:8443/d/x%20y.tar\nhttps://C/{1..2}.tar?sig=2\n/e/x.tar\nhttps://host/x.tar\nb/d/x.tar\n/d/https:/b/x.tar")
	require.NoError(t, err)
	want := []Name{
		{Path: "https:/b:8443/d/x y.tar", Root: "https://b:8443", Raw: "d/x%20y.tar", SizeBytes: -1},
		{Path: "https:/c/1.tar", Root: "https://c", Raw: "1.tar", Query: "sig=2", SizeBytes: -1},
		{Path: "https:/c/2.tar", Root: "https://c", Raw: "2.tar", Query: "sig=2", SizeBytes: -1},
		{Path: "https:/host/e/x.tar", Root: "https://host", Raw: "e/x.tar", Query: "sig=1", SizeBytes: -1},
		{Path: "https:/host/x.tar", Root: "https://host", Raw: "x.tar", Query: "sig=1", SizeBytes: -1},
		{Path: "b/d/x.tar", Raw: "b/d/x.tar", Query: "sig=1", SizeBytes: -1},
		{Path: "https:/host/d/https:/b/x.tar", Root: "https://host", Raw: "d/https:/b/x.tar", Query: "sig=1", SizeBytes: -1},
	}
	require.Equal(t, want, names)
	for _, name := range want {
		host, file, is := Elsewhere(name.Path)
		require.Equal(t, name.Root != "", is, name.Path)
		if is {
			raw, err := decode(name.Raw)
			require.NoError(t, err)
			require.Equal(t, []string{name.Root, raw}, []string{host, file})
		}
	}
	for _, path := range []string{"", "https:", "https:/", "https:/b", "ftp:/b/x", "d/https:/b/x", "https://b/x"} {
		_, _, is := Elsewhere(path)
		require.False(t, is, path)
	}
	shards, err := w.ParseShards([]byte(`{"base": "https://b/d", "shardlist": [{"url": "x.tar", "filesize": 7}, {"url": "https://c/y.tar"}]}`))
	require.NoError(t, err)
	require.Equal(t, Name{Path: "https:/b/d/x.tar", Root: "https://b", Raw: "d/x.tar", SizeBytes: 7}, shards[0])
	require.Equal(t, "https:/c/y.tar", shards[1].Path)
	plain := web(t, "http://host/d/list.txt")
	names, err = plain.ParseText("https://b/x.tar\nhttp://b/y.tar")
	require.NoError(t, err)
	require.Equal(t, []string{"https:/b/x.tar", "http:/b/y.tar"}, []string{names[0].Path, names[1].Path})
}

func TestWidsShardListsAreRead(t *testing.T) {
	w := web(t, "https://host/d/shards.json")
	names, err := w.ParseShards([]byte(`{"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": [
		{"url": "x-0.tar", "md5sum": "", "nsamples": 10, "filesize": 123},
		{"url": "https://host/d/sub/x-1.tar", "nsamples": 10, "filesize": null}, {"url": "/d/x-2.tar"}], "name": "x"}`))
	require.NoError(t, err)
	require.Equal(t, []Name{
		{Path: "x-0.tar", Raw: "x-0.tar", SizeBytes: 123},
		{Path: "sub/x-1.tar", Raw: "sub/x-1.tar", SizeBytes: -1},
		{Path: "x-2.tar", Raw: "x-2.tar", SizeBytes: -1},
	}, names)

	for _, base := range []string{"sub", "./sub/", "/d/sub", "https://host/d/sub/"} {
		names, err = w.ParseShards([]byte(`{"base": "` + base + `", "shardlist": [{"url": "x.tar"}]}`))
		require.NoError(t, err, base)
		require.Equal(t, "sub/x.tar", names[0].Path)
	}
	for text, word := range map[string]string{
		``:                    "JSON",
		`[]`:                  "JSON",
		`{}`:                  "no shardlist",
		`{"shardlist": []}`:   "names no files",
		`{"shardlist": [{}]}`: "shard 0",
		`{"datasets": [{}]}`:  "several datasets",
		`{"base": "/d/..", "shardlist": [{"url": "x.tar"}]}`:               `".."`,
		`{"shardlist": [{"url": "x.tar", "filesize": "many"}]}`:            "JSON",
		`{"shardlist": [{"url": "a.tar"}, {"url": "sub/../b.tar"}]}`:       `shard 1`,
		`{"shardlist": [{"url": "s3://bucket/b.tar"}], "base": "/d/base"}`: "web servers",
	} {
		_, err := w.ParseShards([]byte(text))
		require.ErrorContains(t, err, word, text)
	}
}

// FuzzParse checks that accepted names have paths that are safe to join to a root and are printed
// without secrets, and that errors contain no secrets.
func FuzzParse(f *testing.F) {
	for name := range refusals {
		f.Add(name)
	}
	for _, name := range []string{"s3://bucket/a/*.tar", "s3+https://h:1/p/q//bucket/a", "https://u:secret@h:8/a/{00..3}.tar?secret", "http://[::1]/ü%20/x"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if strings.Count(name, "{") > 2 || len(name) > 200 {
			return
		}
		got, err := Parse(name)
		if err != nil {
			require.Equal(t, Target{}, got)
			return
		}
		if b := got.Bucket; b != nil {
			require.NotContains(t, b.Key, "//")
			require.False(t, strings.HasPrefix(b.Key, "/") || strings.HasSuffix(b.Key, "/"))
			again, err := Parse(b.Root())
			require.NoError(t, err)
			require.Equal(t, [3]string{b.Endpoint, b.Name, b.Key}, [3]string{again.Bucket.Endpoint, again.Bucket.Name, again.Bucket.Key}, "the root is a target too")
			return
		}
		w := got.Web
		require.NotEmpty(t, w.Names)
		require.NotContains(t, w.Root(), "@"+w.Host)
		require.NotContains(t, w.Root(), "?")
		for _, n := range w.Names[:min(100, len(w.Names))] {
			for component := range strings.SplitSeq(n.Path, "/") {
				require.NotContains(t, []string{"", ".", ".."}, component)
			}
			path, err := decode(n.Raw)
			require.NoError(t, err)
			require.Equal(t, n.Path, path, "what is sent is the path")
			path, err = decode(Escape(n.Path))
			require.NoError(t, err)
			require.Equal(t, n.Path, path)
		}
		if len(w.Names) > 100 {
			return
		}
		names, err := w.ParseText(w.Root() + "/" + w.Names[0].Raw)
		require.NoError(t, err)
		require.Equal(t, w.Names[0].Path, names[0].Path, "a list may name it")
	})
}

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
