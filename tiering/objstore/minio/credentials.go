// SPDX-License-Identifier: Apache-2.0

package minio

import (
	"fmt"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/varve/varve/tiering/objstore"
)

// fileCredentialsLife is how long a credentials file is trusted before it is read again.
const fileCredentialsLife = time.Minute

// findCredentials looks at what was given, then at the environment.
func findCredentials(c objstore.Credentials) (*credentials.Credentials, error) {
	if c.File != "" {
		creds := credentials.New(&fileProvider{path: c.File})
		if _, err := creds.GetWithContext(nil); err != nil {
			return nil, err
		}
		return creds, nil
	}
	for _, pair := range []struct{ access, secret, token string }{
		{c.AccessKey, c.SecretKey, c.SessionToken},
		{os.Getenv("MINIO_ACCESS_KEY"), os.Getenv("MINIO_SECRET_KEY"), ""},
		{os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN")},
	} {
		if pair.access != "" && pair.secret != "" {
			return credentials.NewStaticV4(pair.access, pair.secret, pair.token), nil
		}
	}
	return nil, fmt.Errorf("%w: no credentials: set MINIO_ACCESS_KEY and MINIO_SECRET_KEY, or give --bucket-credentials FILE", objstore.ErrDenied)
}

// fileProvider reads the file again from time to time, so that credentials rotate without a restart.
type fileProvider struct {
	path string
	read time.Time
	last credentials.Value
}

func (p *fileProvider) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return p.Retrieve()
}

// Retrieve keeps to the last good content while a new one is half written.
func (p *fileProvider) Retrieve() (credentials.Value, error) {
	c, err := objstore.ReadCredentialsFile(p.path)
	p.read = time.Now()
	if err == nil {
		p.last = credentials.Value{AccessKeyID: c.AccessKey, SecretAccessKey: c.SecretKey, SessionToken: c.SessionToken, SignerType: credentials.SignatureV4}
	}
	if p.last.AccessKeyID != "" {
		return p.last, nil
	}
	return credentials.Value{}, err
}

func (p *fileProvider) IsExpired() bool { return time.Since(p.read) > fileCredentialsLife }
