// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/varve/varve/tiering/objstore"
)

const (
	// credentialsDeadline bounds the search for credentials at start: the last link of the chain asks a metadata server.
	credentialsDeadline = 15 * time.Second
	// fileCredentialsLife is how long a credentials file is trusted before it is read again.
	fileCredentialsLife = time.Minute
	// regionElsewhere is used with an endpoint of another store when no region is given.
	regionElsewhere = "us-east-1"
)

// loadConfig finds region and credentials and proves that there are some.
func loadConfig(ctx context.Context, l objstore.Location, c objstore.Credentials, sdk *awshttp.BuildableClient) (aws.Config, error) {
	ctx, cancel := context.WithTimeout(ctx, credentialsDeadline)
	defer cancel()
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(sdk),
	}
	if l.Region != "" {
		options = append(options, config.WithRegion(l.Region))
	}
	if p := given(c); p != nil {
		options = append(options, config.WithCredentialsProvider(p))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("bucket %s: read AWS configuration: %w: %w", l, objstore.ErrDenied, err)
	}
	if cfg.Region == "" {
		if l.Endpoint == "" {
			return aws.Config{}, fmt.Errorf("bucket %s: %w: no region: add ?region=… or set AWS_REGION", l, objstore.ErrURL)
		}
		cfg.Region = regionElsewhere
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return aws.Config{}, fmt.Errorf("bucket %s: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role, or give --bucket-credentials FILE (%w: %w)",
			l, objstore.ErrDenied, err)
	}
	cfg.Credentials = aws.NewCredentialsCache(refreshing{cfg.Credentials})
	return cfg, nil
}

// given returns the provider of credentials that were given explicitly, or nil.
func given(c objstore.Credentials) aws.CredentialsProvider {
	switch {
	case c.File != "":
		return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			f, err := objstore.ReadCredentialsFile(c.File)
			if err != nil {
				return aws.Credentials{}, err
			}
			return aws.Credentials{AccessKeyID: f.AccessKey, SecretAccessKey: f.SecretKey, SessionToken: f.SessionToken, Source: c.File,
				CanExpire: true, Expires: time.Now().Add(fileCredentialsLife)}, nil
		})
	case c.AccessKey != "":
		return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: c.AccessKey, SecretAccessKey: c.SecretKey, SessionToken: c.SessionToken, Source: "given"}, nil
		})
	}
	return nil
}

// refreshing marks a failed refresh as unavailable: credentials were found at start, so whoever renews them is away for now,
// and the request was not sent.
type refreshing struct{ inner aws.CredentialsProvider }

func (r refreshing) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := r.inner.Retrieve(ctx)
	if err != nil {
		return c, fmt.Errorf("renew credentials: %w: %w", objstore.ErrUnavailable, err)
	}
	return c, nil
}
