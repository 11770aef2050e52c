// SPDX-License-Identifier: Apache-2.0

package minio

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	minio "github.com/minio/minio-go/v7"

	"github.com/varve/varve/tiering/objstore"
)

// regionDefault saves asking the store for the bucket's region; a store with another one is named by ?region=.
const regionDefault = "us-east-1"

// Store is a bucket behind the S3 protocol.
type Store struct {
	core      *minio.Core
	transport *http.Transport
	l         objstore.Location
}

// New opens the bucket of a minio:// URL. It does not talk to it: that is objstore.Check's business.
func New(_ context.Context, l objstore.Location, c objstore.Credentials) (objstore.Store, error) {
	creds, err := findCredentials(c)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", l, err)
	}
	region := l.Region
	if region == "" && !strings.HasSuffix(l.Endpoint, ".amazonaws.com") {
		region = regionDefault
	}
	transport := objstore.NewTransport()
	core, err := minio.NewCore(l.Endpoint, &minio.Options{Creds: creds, Secure: l.TLS, Transport: transport, Region: region, MaxRetries: 1})
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w: %w", l, objstore.ErrURL, err)
	}
	return &Store{core: core, transport: transport, l: l}, nil
}

// fail maps an SDK error onto the sentinels.
func fail(op objstore.Op, key string, err error, harmless bool) error {
	if err == nil {
		return nil
	}
	a := objstore.S3Answer{Op: op, Key: key, Cause: err, Harmless: harmless}
	var re minio.ErrorResponse
	if errors.As(err, &re) {
		a.Status, a.Code = re.StatusCode, re.Code
		if a.Status == 0 && a.Code != "" {
			// An error in the body of a success, or one of the SDK's own about its arguments: the code decides.
			a.Status = http.StatusOK
		}
	}
	return a.Error()
}

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

// putOptions are those of an object: created only where there is none.
func putOptions(meta map[string]string) minio.PutObjectOptions {
	o := minio.PutObjectOptions{UserMetadata: meta}
	o.SetMatchETagExcept("*")
	return o
}

// wholeOptions are those of an object sent by one request. A server that checks the body against a CRC-32C (checksum=when-supported)
// need not be sent a signature over its SHA-256 as well, which is what plain http has by default and costs more than all else that an
// upload does.
func (s *Store) wholeOptions(meta map[string]string, crc uint32) minio.PutObjectOptions {
	if s.l.Checksum != objstore.ChecksumWhenSupported {
		return putOptions(meta)
	}
	with := maps.Clone(meta)
	with[checksumHeader] = base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
	o := putOptions(with)
	o.DisableContentSha256 = true
	return o
}

// sha256OfNothing signs an empty body.
const sha256OfNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// checksumHeader among the metadata is sent as the header that it is.
const checksumHeader = "x-amz-checksum-crc32c"

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
	opts, sha := s.wholeOptions(meta, crc), ""
	if body.Size() == 0 {
		// In chunks even nothing would have a body, the end of the chunks. versitygw answers without reading it when it comes late, and
		// takes it for the beginning of the next request on the connection.
		opts.DisableContentSha256, sha = true, sha256OfNothing
	}
	_, err = s.core.PutObject(ctx, s.l.Bucket, s.l.Prefix+key, v, body.Size(), "", sha, opts)
	if berr := v.Err(); berr != nil && err != nil {
		return fmt.Errorf("create %s: %w", key, berr) // the store was not sent a whole object
	}
	return fail(objstore.OpCreate, key, err, false)
}

func (s *Store) Get(ctx context.Context, key string, off, n int64, dst []byte) ([]byte, error) {
	if err := s.check(objstore.OpGet, key); err != nil {
		return dst, err
	}
	if done, err := objstore.SplitRange(ctx, s, key, off, n); done {
		return dst, err
	}
	var o minio.GetObjectOptions
	if err := o.SetRange(off, off+n-1); err != nil {
		return dst, fmt.Errorf("get %s: %w: %w", key, objstore.ErrRange, err)
	}
	body, _, header, err := s.core.GetObject(ctx, s.l.Bucket, s.l.Prefix+key, o)
	if err != nil {
		return dst, fail(objstore.OpGet, key, err, false)
	}
	defer body.Close()
	if err := objstore.CheckContentRange(header.Get("Content-Range"), off, n); err != nil {
		return dst, fmt.Errorf("get %s: %w", key, err)
	}
	got, err := objstore.AppendBody(dst, body, n)
	if err != nil {
		return dst, fmt.Errorf("get %s: %w", key, err)
	}
	return got, nil
}

func (s *Store) Stat(ctx context.Context, key string) (objstore.Info, error) {
	if err := s.check(objstore.OpStat, key); err != nil {
		return objstore.Info{}, err
	}
	o, err := s.core.StatObject(ctx, s.l.Bucket, s.l.Prefix+key, minio.StatObjectOptions{})
	if err != nil {
		return objstore.Info{}, fail(objstore.OpStat, key, err, false)
	}
	meta := make(map[string]string, len(o.UserMetadata))
	for k, v := range o.UserMetadata {
		meta[strings.ToLower(k)] = v // the SDK hands on the spelling of HTTP headers
	}
	return objstore.Info{Key: key, Size: o.Size, Modified: o.LastModified, Metadata: meta}, nil
}

func (s *Store) List(ctx context.Context, prefix, startAfter string, fn func(objstore.Info) error) error {
	o := minio.ListObjectsOptions{Prefix: s.l.Prefix + prefix, Recursive: true, MaxKeys: objstore.ListPageSize}
	if startAfter != "" {
		o.StartAfter = s.l.Prefix + startAfter
	}
	for info := range s.core.ListObjectsIter(ctx, s.l.Bucket, o) {
		if info.Err != nil {
			return fail(objstore.OpList, prefix, info.Err, false)
		}
		if err := fn(objstore.Info{Key: strings.TrimPrefix(info.Key, s.l.Prefix), Size: info.Size, Modified: info.LastModified}); err != nil {
			return objstore.ListEnd(err)
		}
	}
	if err := ctx.Err(); err != nil { // the iterator may end without a word
		return fmt.Errorf("list %s: %w: %w", prefix, objstore.ErrUnavailable, err)
	}
	return nil
}

func (s *Store) Delete(ctx context.Context, keys []string) []error {
	return objstore.DeleteEach(ctx, keys, func(ctx context.Context, key string) error {
		err := s.core.RemoveObject(ctx, s.l.Bucket, s.l.Prefix+key, minio.RemoveObjectOptions{})
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
	err := fail(objstore.OpAbort, key, s.core.AbortMultipartUpload(ctx, s.l.Bucket, s.l.Prefix+key, uploadID), false)
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

// upload is one multipart upload: objstore.Multipart drives it.
type upload struct {
	s     *Store
	key   string
	meta  map[string]string
	parts []minio.CompletePart
}

func (u *upload) Begin(ctx context.Context) (string, error) {
	id, err := u.s.core.NewMultipartUpload(ctx, u.s.l.Bucket, u.s.l.Prefix+u.key, minio.PutObjectOptions{UserMetadata: u.meta})
	return id, fail(objstore.OpCreate, u.key, err, true)
}

func (u *upload) Part(ctx context.Context, id string, number int, data []byte) error {
	p, err := u.s.core.PutObjectPart(ctx, u.s.l.Bucket, u.s.l.Prefix+u.key, id, number, bytes.NewReader(data), int64(len(data)), minio.PutObjectPartOptions{})
	if err != nil {
		return fail(objstore.OpCreate, u.key, err, true)
	}
	u.parts = append(u.parts, minio.CompletePart{PartNumber: number, ETag: p.ETag})
	return nil
}

func (u *upload) Complete(ctx context.Context, id string) error {
	_, err := u.s.core.CompleteMultipartUpload(ctx, u.s.l.Bucket, u.s.l.Prefix+u.key, id, u.parts, putOptions(nil))
	return fail(objstore.OpCreate, u.key, err, false)
}

func (u *upload) Abort(ctx context.Context, id string) error { return u.s.AbortUpload(ctx, u.key, id) }
