// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/varve/varve/tiering/objstore"
)

// continueThreshold is the body size from which the client asks before it sends: a refusal then costs no upload, and is
// not lost in the reset of a connection that the store closed while we were still sending.
const continueThreshold = 256 << 10

// Store is a bucket behind the S3 protocol.
type Store struct {
	client    *s3.Client
	transport *http.Transport
	l         objstore.Location
	// unsigned: the connection is TLS, so that bodies need no signature.
	unsigned bool
}

// New opens the bucket of an s3:// URL. It finds credentials, or fails with ErrDenied, but does not talk to the bucket: that is
// objstore.Check's business.
func New(ctx context.Context, l objstore.Location, c objstore.Credentials) (objstore.Store, error) {
	cfg, err := loadConfig(ctx, l, c, awshttp.NewBuildableClient().WithTransportOptions(objstore.TuneTransport))
	if err != nil {
		return nil, err
	}
	transport := objstore.NewTransport()
	if sdk, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
		transport = sdk.GetTransport() // with the certificates of AWS_CA_BUNDLE
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		o.Logger = logging.Nop{} // its warnings repeat what errors say
		o.UsePathStyle = l.PathStyle
		o.ContinueHeaderThresholdBytes = continueThreshold
		o.Retryer = aws.NopRetryer{}
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
		if l.Endpoint != "" {
			o.BaseEndpoint = aws.String(l.Endpoint)
		}
	})
	return &Store{client: client, transport: transport, l: l, unsigned: !strings.HasPrefix(l.Endpoint, "http://")}, nil
}

// fail maps an SDK error onto the sentinels.
func fail(op objstore.Op, key string, err error, harmless bool) error {
	if err == nil {
		return nil
	}
	a := objstore.S3Answer{Op: op, Key: key, Cause: err, Harmless: harmless}
	var re *smithyhttp.ResponseError
	if errors.As(err, &re) && re.Response != nil {
		a.Status = re.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		a.Code = api.ErrorCode()
	}
	return a.Error()
}

func (s *Store) path(key string) *string { return aws.String(s.l.Prefix + key) }

func (s *Store) bucket() *string { return aws.String(s.l.Bucket) }

// check is CheckKey for the key as the store sees it.
func (s *Store) check(op objstore.Op, key string) error {
	err := objstore.CheckKey(key)
	if err == nil {
		err = objstore.CheckKey(s.l.Prefix + key)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// bodyOptions applies to requests that carry a body.
func (s *Store) bodyOptions(o *s3.Options) {
	if s.unsigned {
		o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
	}
}

// checksum returns the header value where the URL allows such headers.
func (s *Store) checksum(crc uint32) *string {
	if s.l.Checksum != objstore.ChecksumWhenSupported {
		return nil
	}
	return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc)))
}

func (s *Store) Create(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) error {
	if err := s.check(objstore.OpCreate, key); err != nil {
		return err
	}
	meta, crc, err := objstore.StoredMetadata(body, o)
	if err != nil {
		return fmt.Errorf("create %s: %w", key, err)
	}
	v := objstore.NewVerifiedBody(body, crc)
	defer v.Close()
	if body.Size() > objstore.MaxSingleShot {
		u := &upload{s: s, key: key, meta: meta}
		if err := objstore.Multipart(ctx, u, v, body.Size(), o.OnMultipart); err != nil {
			return fmt.Errorf("create %s: %w", key, err)
		}
		return nil
	}
	in := &s3.PutObjectInput{
		Bucket: s.bucket(), Key: s.path(key), Body: v, ContentLength: aws.Int64(body.Size()), Metadata: meta,
		IfNoneMatch: aws.String("*"), ChecksumCRC32C: s.checksum(crc), StorageClass: types.StorageClass(s.l.StorageClass),
		ServerSideEncryption: types.ServerSideEncryption(s.l.SSE), SSEKMSKeyId: optional(s.l.KMSKey),
	}
	_, err = s.client.PutObject(ctx, in, s.bodyOptions)
	if berr := v.Err(); berr != nil && err != nil {
		return fmt.Errorf("create %s: %w", key, berr) // the store was not sent a whole object
	}
	return fail(objstore.OpCreate, key, err, false)
}

func optional(v string) *string {
	if v == "" {
		return nil
	}
	return &v
}

func (s *Store) Get(ctx context.Context, key string, off, n int64, dst []byte) ([]byte, error) {
	if err := s.check(objstore.OpGet, key); err != nil {
		return dst, err
	}
	if done, err := objstore.SplitRange(ctx, s, key, off, n); done {
		return dst, err
	}
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: s.bucket(), Key: s.path(key), Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+n-1))})
	if err != nil {
		return dst, fail(objstore.OpGet, key, err, false)
	}
	defer out.Body.Close()
	if err := objstore.CheckContentRange(aws.ToString(out.ContentRange), off, n); err != nil {
		return dst, fmt.Errorf("get %s: %w", key, err)
	}
	got, err := objstore.AppendBody(dst, out.Body, n)
	if err != nil {
		return dst, fmt.Errorf("get %s: %w", key, err)
	}
	return got, nil
}

func (s *Store) Stat(ctx context.Context, key string) (objstore.Info, error) {
	if err := s.check(objstore.OpStat, key); err != nil {
		return objstore.Info{}, err
	}
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: s.bucket(), Key: s.path(key)})
	if err != nil {
		return objstore.Info{}, fail(objstore.OpStat, key, err, false)
	}
	return objstore.Info{Key: key, Size: aws.ToInt64(out.ContentLength), Modified: aws.ToTime(out.LastModified), Metadata: out.Metadata}, nil
}

func (s *Store) List(ctx context.Context, prefix, startAfter string, fn func(objstore.Info) error) error {
	in := &s3.ListObjectsV2Input{Bucket: s.bucket(), Prefix: s.path(prefix), MaxKeys: aws.Int32(objstore.ListPageSize)}
	if startAfter != "" {
		in.StartAfter = s.path(startAfter)
	}
	for {
		page, err := s.client.ListObjectsV2(ctx, in)
		if err != nil {
			return fail(objstore.OpList, prefix, err, false)
		}
		for _, o := range page.Contents {
			info := objstore.Info{Key: strings.TrimPrefix(aws.ToString(o.Key), s.l.Prefix), Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified)}
			if err := fn(info); err != nil {
				return objstore.ListEnd(err)
			}
		}
		if !aws.ToBool(page.IsTruncated) {
			return nil
		}
		if aws.ToString(page.NextContinuationToken) == "" {
			return fmt.Errorf("list %s: %w: a page says there is more and gives no token", prefix, objstore.ErrRejected)
		}
		in.ContinuationToken = page.NextContinuationToken
	}
}

func (s *Store) Delete(ctx context.Context, keys []string) []error {
	return objstore.DeleteEach(ctx, keys, func(ctx context.Context, key string) error {
		_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: s.bucket(), Key: s.path(key)})
		if err = fail(objstore.OpDelete, key, err, false); errors.Is(err, objstore.ErrNotFound) {
			return nil
		}
		return err
	})
}

func (s *Store) AbortUpload(ctx context.Context, key, uploadID string) error {
	if err := s.check(objstore.OpAbort, key); err != nil {
		return err
	}
	_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: s.bucket(), Key: s.path(key), UploadId: aws.String(uploadID)})
	err = fail(objstore.OpAbort, key, err, false)
	if errors.Is(err, objstore.ErrUploadLost) || errors.Is(err, objstore.ErrNotFound) {
		return nil
	}
	return err
}

// Close closes idle connections.
func (s *Store) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}
