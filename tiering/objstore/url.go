// SPDX-License-Identifier: Apache-2.0

package objstore

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// ErrURL marks every error of ParseURL. The text is one line and says what to do.
var ErrURL = errors.New("bad bucket URL")

// Scheme selects the driver.
type Scheme string

const (
	SchemeS3    Scheme = "s3"
	SchemeMinio Scheme = "minio"
	SchemeFile  Scheme = "file"
	SchemeMem   Scheme = "mem"
)

// Checksum says when a driver sends checksums that not every store knows (faults D1).
type Checksum string

const (
	ChecksumWhenRequired  Checksum = "when-required"
	ChecksumWhenSupported Checksum = "when-supported"
)

// Location is a parsed bucket URL. It holds no secret.
type Location struct {
	Scheme Scheme
	// Bucket is the bucket of s3 and minio, the name of a mem instance.
	Bucket string
	// Prefix is put before each key: empty, or ending in a slash. Empty for file and mem.
	Prefix string
	// Dir is the directory of a file URL.
	Dir string
	// Endpoint is host:port of minio, the endpoint URL of s3 (empty: that of AWS).
	Endpoint string
	// TLS of minio.
	TLS bool
	// The rest is for s3; Region also for minio. Empty: whatever the environment says.
	Region       string
	PathStyle    bool
	SSE          string
	KMSKey       string
	StorageClass string
	Checksum     Checksum

	text string
}

// String returns the URL as it was given.
func (l Location) String() string { return l.text }

// ObjectURL is the URL of an object: the bucket's, with the key behind its path. "" for mem, which nobody else can reach.
func (l Location) ObjectURL(key string) string {
	u, err := url.Parse(l.text)
	if err != nil || l.Scheme == SchemeMem {
		return ""
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+"/"+key, ""
	return u.String()
}

// parameters holds, per scheme, the query parameters and how each is read.
var parameters = map[Scheme]map[string]func(*Location, string) error{
	SchemeS3: {
		"region":        func(l *Location, v string) error { l.Region = v; return nonEmpty(v) },
		"endpoint":      setEndpoint,
		"path-style":    func(l *Location, v string) (err error) { l.PathStyle, err = parseBool(v); return err },
		"sse":           setSSE,
		"kms-key":       func(l *Location, v string) error { l.KMSKey = v; return nonEmpty(v) },
		"storage-class": func(l *Location, v string) error { l.StorageClass = v; return nonEmpty(v) },
		"checksum":      setChecksum,
	},
	SchemeMinio: {
		"tls":      func(l *Location, v string) (err error) { l.TLS, err = parseBool(v); return err },
		"region":   func(l *Location, v string) error { l.Region = v; return nonEmpty(v) },
		"checksum": setChecksum,
	},
	SchemeFile: {},
	SchemeMem:  {},
}

// ParseURL reads the value of --bucket.
func ParseURL(raw string) (Location, error) {
	l, err := parseURL(raw)
	if err != nil {
		return Location{}, fmt.Errorf("%w: %w", ErrURL, err)
	}
	return l, nil
}

func parseURL(raw string) (Location, error) {
	if raw == "" {
		return Location{}, errors.New("it is empty; write s3://bucket/prefix, minio://host:port/bucket/prefix or file:///dir")
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The text of url.Error repeats the whole URL, which may hold a password.
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return Location{}, fmt.Errorf("not a URL: %w", err)
	}
	if u.User != nil {
		return Location{}, errors.New("it holds a user or password; give credentials by environment or --bucket-credentials FILE")
	}
	l := Location{Scheme: Scheme(u.Scheme), text: raw, Checksum: ChecksumWhenRequired, TLS: u.Scheme == string(SchemeMinio)}
	known, ok := parameters[l.Scheme]
	switch {
	case u.Scheme == "":
		return Location{}, fmt.Errorf("%q has no scheme; write s3://, minio://, file:/// or mem://", raw)
	case !ok:
		return Location{}, fmt.Errorf("unknown scheme %q; s3, minio, file and mem are known", u.Scheme)
	case u.Fragment != "" || strings.HasSuffix(raw, "#"):
		return Location{}, fmt.Errorf("%q has a fragment (#…); write %%23 for a # in a name", raw)
	case u.Opaque != "":
		return Location{}, fmt.Errorf("%q lacks the slashes after %q", raw, u.Scheme+":")
	}
	if err := l.setPlace(u); err != nil {
		return Location{}, err
	}
	return l, l.setParameters(u, known)
}

// setPlace reads host and path.
func (l *Location) setPlace(u *url.URL) error {
	path := strings.TrimPrefix(u.Path, "/")
	switch l.Scheme {
	case SchemeS3:
		if strings.Contains(u.Host, ":") {
			return fmt.Errorf("bucket %q has a port; for another store than AWS write s3://bucket/prefix?endpoint=http://host:port", u.Host)
		}
		l.Bucket = u.Host
	case SchemeMinio:
		if u.Hostname() == "" {
			return errors.New("no host; write minio://host:port/bucket/prefix")
		}
		if err := checkPort(u.Host); err != nil {
			return err
		}
		l.Endpoint = u.Host
		l.Bucket, path, _ = strings.Cut(path, "/")
	case SchemeFile:
		return l.setDir(u)
	case SchemeMem:
		if l.Bucket = u.Host; path != "" {
			return fmt.Errorf("mem://%s has a path; write mem:// or mem://name", u.Host)
		}
		return nil
	}
	if l.Bucket == "" {
		return fmt.Errorf("no bucket; write %s", map[Scheme]string{SchemeS3: "s3://bucket/prefix", SchemeMinio: "minio://host:port/bucket/prefix"}[l.Scheme])
	}
	if !bucketName.MatchString(l.Bucket) {
		return fmt.Errorf("bucket %q is no bucket name: 3 to 63 of a-z, 0-9, dot and dash, letter or digit at both ends", l.Bucket)
	}
	if path = strings.TrimSuffix(path, "/"); path != "" {
		if err := CheckKey(path); err != nil {
			return fmt.Errorf("prefix: %w", err)
		}
		l.Prefix = path + "/"
	}
	return nil
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

func (l *Location) setDir(u *url.URL) error {
	if u.Host != "" {
		return fmt.Errorf("file://%s names a host; write three slashes and an absolute path: file:///dir", u.Host)
	}
	if u.Path == "" || u.Path == "/" {
		return errors.New("no directory; write file:///dir")
	}
	dir := u.Path
	if runtime.GOOS == "windows" {
		dir = strings.TrimPrefix(dir, "/") // file:///C:/dir
	}
	l.Dir = filepath.Clean(filepath.FromSlash(dir))
	return nil
}

func checkPort(host string) error {
	if !strings.Contains(host, ":") || strings.HasSuffix(host, "]") {
		return nil
	}
	_, port, err := net.SplitHostPort(host)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 {
		return fmt.Errorf("%q is no host:port", host)
	}
	return nil
}

func (l *Location) setParameters(u *url.URL, known map[string]func(*Location, string) error) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		set, ok := known[name]
		if !ok {
			if len(known) == 0 {
				return fmt.Errorf("unknown parameter %q; %s:// takes none", name, l.Scheme)
			}
			return fmt.Errorf("unknown parameter %q; %s:// takes %s", name, l.Scheme, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if len(query[name]) > 1 {
			return fmt.Errorf("parameter %s is given %d times", name, len(query[name]))
		}
		value := query[name][0]
		if err := set(l, value); err != nil {
			if strings.Contains(value, "@") {
				value = "…" // perhaps a password
			}
			return fmt.Errorf("%s=%s: %w", name, value, err)
		}
	}
	if l.KMSKey != "" && !strings.HasPrefix(l.SSE, "aws:kms") {
		return errors.New("kms-key needs sse=aws:kms")
	}
	if !query.Has("path-style") && l.Scheme == SchemeS3 && l.Endpoint != "" {
		l.PathStyle = needsPathStyle(l.Endpoint)
	}
	return nil
}

// needsPathStyle: a bucket cannot be a subdomain of an address.
func needsPathStyle(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	_, err = netip.ParseAddr(u.Hostname())
	return err == nil || u.Hostname() == "localhost"
}

func nonEmpty(v string) error {
	if v == "" {
		return errors.New("it is empty; leave it out or give a value")
	}
	return nil
}

func parseBool(v string) (bool, error) {
	switch v {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errors.New("neither true nor false")
}

func setEndpoint(l *Location, v string) error {
	u, err := url.Parse(v)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		return errors.New("no endpoint; write http://host:port or https://host")
	case u.User != nil:
		return errors.New("an endpoint holds no user or password")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return errors.New("an endpoint has no path; the bucket goes into s3://bucket/prefix")
	}
	if err := checkPort(u.Host); err != nil {
		return err
	}
	l.Endpoint = u.Scheme + "://" + u.Host
	return nil
}

func setSSE(l *Location, v string) error {
	switch v {
	case "AES256", "aws:kms", "aws:kms:dsse":
		l.SSE = v
		return nil
	}
	return errors.New("neither AES256, aws:kms nor aws:kms:dsse")
}

func setChecksum(l *Location, v string) error {
	switch Checksum(v) {
	case ChecksumWhenRequired, ChecksumWhenSupported:
		l.Checksum = Checksum(v)
		return nil
	}
	return errors.New("neither when-required nor when-supported")
}
