// SPDX-License-Identifier: Apache-2.0

package objstore

import (
	"fmt"
	"os"
	"strings"
)

// Credentials are given to a driver. The zero value means: look where the driver looks by default (environment, and for
// s3 the whole chain of the AWS SDK).
type Credentials struct {
	// AccessKey, SecretKey and SessionToken are fixed credentials.
	AccessKey, SecretKey, SessionToken string
	// File is read at start and again when it changes. See ReadCredentialsFile.
	File string
}

// credentialNames maps what a credentials file may call a value, in lower case, to the field.
var credentialNames = map[string]func(*Credentials) *string{
	"aws_access_key_id":     func(c *Credentials) *string { return &c.AccessKey },
	"aws_secret_access_key": func(c *Credentials) *string { return &c.SecretKey },
	"aws_session_token":     func(c *Credentials) *string { return &c.SessionToken },
	"minio_access_key":      func(c *Credentials) *string { return &c.AccessKey },
	"minio_secret_key":      func(c *Credentials) *string { return &c.SecretKey },
}

// ReadCredentialsFile reads NAME=VALUE lines, with the names of the AWS or MinIO environment variables in either case: so it
// takes an env file as well as the [default] section of an AWS credentials file. Errors never hold a value.
func ReadCredentialsFile(path string) (Credentials, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Credentials{}, fmt.Errorf("%w: read credentials: %w", ErrDenied, err)
	}
	var c Credentials
	section := "default"
	for n, line := range strings.Split(string(raw), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			section = strings.TrimSpace(strings.Trim(line, "[]"))
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !ok {
			return Credentials{}, fmt.Errorf("%w: credentials file %s line %d is not NAME=VALUE", ErrDenied, path, n+1)
		}
		if field := credentialNames[strings.ToLower(strings.TrimSpace(name))]; field != nil && section == "default" {
			*field(&c) = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	if c.AccessKey == "" || c.SecretKey == "" {
		return Credentials{}, fmt.Errorf("%w: credentials file %s lacks AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY", ErrDenied, path)
	}
	return c, nil
}
