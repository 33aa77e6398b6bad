package target

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Web is a set of files on a web server.
type Web struct {
	Scheme string // http or https
	Host   string // with the port if it is not the scheme's default; in lower case
	// Dir is the folder, percent-encoded in canonical form, ending but not beginning with a slash:
	// "" is the server's root.
	Dir string
	// Written is how the user wrote the names below Dir, without the query.
	Written string
	// Names are the files, or the one list of files. Paths are relative to Dir.
	Names []Name
	// List means that the file is a list: see ParseText and ParseShards.
	List bool
	// Query is sent with each request to this server, and User is sent to no other server. They are
	// secrets: neither is printed.
	Query string
	User  *url.Userinfo
}

// Name is one file.
type Name struct {
	Path string // relative to the root, decoded
	Raw  string // the path as it is sent, percent-encoded as the user wrote it
	// Root is the location of a file that a list names outside of its own folder: then Raw is
	// relative to Root, and Elsewhere parses Path. It is "" for other files.
	Root  string
	Query string // sent with requests for this file; a secret
	// SizeBytes is the size of the file according to the list; -1 if it does not have it.
	SizeBytes int64
}

// Root returns the URL of the folder, without user name, password and query.
func (w Web) Root() string {
	return strings.TrimSuffix(w.Scheme+"://"+w.Host+"/"+w.Dir, "/")
}

// Folder returns the folder that the URL itself names, with no files named in it.
func (w Web) Folder() (Web, error) {
	if len(w.Names) != 1 {
		return Web{}, fmt.Errorf("%s/%s stands for %d folders: name one, since a web server does not list what it has", w.Root(), w.Written, len(w.Names))
	}
	w.Dir += Escape(w.Names[0].Path) + "/"
	w.Written, w.Names, w.List = "", nil, false
	return w, nil
}

// webSigns begin patterns in other names. They are rejected, because a web server has no listing to
// select from.
const webSigns = `*[]\`

func parseWeb(scheme, rest string) (Web, error) {
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, slash := strings.Cut(rest, "/")
	w := Web{Scheme: scheme, Query: query}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		var err error
		if w.User, err = parseUser(scheme, authority[:i]); err != nil {
			return Web{}, err
		}
		authority = authority[i+1:]
	}
	if strings.Contains(rest, "#") || strings.Contains(query, "#") {
		return Web{}, fmt.Errorf("the %s:// URL has a # in it: servers never see what follows it; write %%23", scheme)
	}
	if strings.Contains(query, " ") {
		return Web{}, fmt.Errorf("the query of the %s:// URL has a space in it: write %%20", scheme)
	}
	var err error
	if w.Host, err = parseHost(scheme, authority); err != nil {
		return Web{}, err
	}
	where := scheme + "://" + w.Host
	if strings.HasSuffix(path, "/") || path == "" || strings.Contains(path, "*") {
		if name := bucketAt(w.Host, path); name != "" {
			return Web{}, fmt.Errorf("%s is of a bucket: write %s, which can be listed (with --anonymous, if it is public)", where, name)
		}
	}
	if !slash || path == "" || strings.HasSuffix(path, "/") {
		return Web{}, fmt.Errorf("%s: a web server does not list its folders: name the files, as in %s/train/{000..146}.tar, or a .txt list of them; a bucket of such a service is s3+%s/BUCKET/PREFIX", where, where, where)
	}
	if err := checkWebPath(path, where); err != nil {
		return Web{}, err
	}
	dir := strings.LastIndexByte(path, '/') + 1
	if i := strings.IndexByte(path, '{'); i >= 0 {
		dir = strings.LastIndexByte(path[:i], '/') + 1
	}
	if w.Dir, err = canonical(path[:dir]); err != nil {
		return Web{}, fmt.Errorf("%s: %w", where, err)
	}
	w.Written = path[dir:]
	if w.Names, err = expand(w.Written, query); err != nil {
		return Web{}, fmt.Errorf("%s: %w", where, err)
	}
	w.List = len(w.Names) == 1 && (strings.HasSuffix(w.Names[0].Path, ".txt") || strings.HasSuffix(w.Names[0].Path, ".json"))
	return w, nil
}

func parseUser(scheme, info string) (*url.Userinfo, error) {
	if scheme != "https" {
		return nil, fmt.Errorf("http:// with a user name sends the password in the clear: use https://")
	}
	name, password, _ := strings.Cut(info, ":")
	name, err1 := url.PathUnescape(name)
	password, err2 := url.PathUnescape(password)
	if err1 != nil || err2 != nil || strings.Contains(name, ":") {
		return nil, fmt.Errorf("the user name or the password in the https:// URL is not percent-encoded")
	}
	return url.UserPassword(name, password), nil
}

// Host returns host[:port] in the form of Web.Host. If scheme is "", it is https.
func Host(scheme, authority string) (string, error) {
	return parseHost(cmp.Or(scheme, "https"), authority)
}

// parseHost returns host[:port], in lower case and without the scheme's default port.
func parseHost(scheme, authority string) (string, error) {
	// This may be part of a password that contains a slash.
	refused := fmt.Errorf("the %s:// URL has no server that it can be sent to: write %s://HOST/PATH, and percent-encode what is special in a user name and a password", scheme, scheme)
	u, err := url.Parse(scheme + "://" + authority + "/")
	if err != nil || u.Hostname() == "" || u.Host != authority || strings.ContainsAny(u.Hostname(), webSigns[:1]+`{}\ "'<>|^`+"`") {
		return "", refused
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if strings.HasSuffix(authority, ":") {
		return "", refused
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "" || scheme == "http" && port == "80" || scheme == "https" && port == "443" {
		return host, nil
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port), nil
}

func checkWebPath(path, where string) error {
	if i := strings.IndexAny(path, webSigns); i >= 0 {
		return fmt.Errorf("%s: %q is no pattern here, since a web server does not list what it has: name the files by number, as {000..146}, or by a .txt list; where the name has the sign itself, write %%%02X", where, path[i:i+1], path[i])
	}
	return checkComponents(path, "the path at "+where)
}

// decode returns a percent-encoded path decoded. The number of components must not change.
func decode(raw string) (string, error) {
	path, err := url.PathUnescape(raw)
	if err != nil {
		return "", fmt.Errorf("the path is not percent-encoded: a %% is written %%25")
	}
	if strings.Count(path, "/") != strings.Count(raw, "/") || strings.Contains(path, "\x00") {
		return "", fmt.Errorf("the path has a %%2F or %%00 in it: no shard can have such a name")
	}
	for component := range strings.SplitSeq(path, "/") {
		if component == "." || component == ".." {
			return "", fmt.Errorf("the path has the component %q: write it without", component)
		}
	}
	return path, nil
}

// canonical returns a percent-encoded path in a form in which equal paths are equal.
func canonical(raw string) (string, error) {
	path, err := decode(raw)
	return Escape(path), err
}

// Escape percent-encodes everything in a path except letters, digits, -._~ and slashes.
func Escape(path string) string {
	return escape(path, "-._~/")
}

// escape percent-encodes everything except letters, digits and the characters in kept.
func escape(s, kept string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; isLetter(c) || isDigit(c) || strings.IndexByte(kept, c) >= 0 {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// sent are the characters that are sent in a path as the user wrote them.
const sent = "-._~/%!$&'()*+,;=:@"
