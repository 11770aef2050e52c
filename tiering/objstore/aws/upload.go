// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"bytes"
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/varve/varve/tiering/objstore"
)

// upload is one multipart upload: objstore.Multipart drives it.
type upload struct {
	s     *Store
	key   string
	meta  map[string]string
	parts []types.CompletedPart
}

func (u *upload) Begin(ctx context.Context) (string, error) {
	in := &s3.CreateMultipartUploadInput{
		Bucket: u.s.bucket(), Key: u.s.path(u.key), Metadata: u.meta, StorageClass: types.StorageClass(u.s.l.StorageClass),
		ServerSideEncryption: types.ServerSideEncryption(u.s.l.SSE), SSEKMSKeyId: optional(u.s.l.KMSKey),
	}
	if u.s.l.Checksum == objstore.ChecksumWhenSupported {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
	}
	out, err := u.s.client.CreateMultipartUpload(ctx, in)
	if err != nil {
		return "", fail(objstore.OpCreate, u.key, err, true)
	}
	return aws.ToString(out.UploadId), nil
}

func (u *upload) Part(ctx context.Context, id string, number int, data []byte) error {
	sum := u.s.checksum(objstore.CRC32C(data))
	out, err := u.s.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: u.s.bucket(), Key: u.s.path(u.key), UploadId: aws.String(id), PartNumber: aws.Int32(int32(number)),
		Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))), ChecksumCRC32C: sum,
	}, u.s.bodyOptions)
	if err != nil {
		return fail(objstore.OpCreate, u.key, err, true)
	}
	u.parts = append(u.parts, types.CompletedPart{ETag: out.ETag, PartNumber: aws.Int32(int32(number)), ChecksumCRC32C: sum})
	return nil
}

func (u *upload) Complete(ctx context.Context, id string) error {
	_, err := u.s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: u.s.bucket(), Key: u.s.path(u.key), UploadId: aws.String(id), IfNoneMatch: aws.String("*"),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts},
	})
	return fail(objstore.OpCreate, u.key, err, false)
}

func (u *upload) Abort(ctx context.Context, id string) error { return u.s.AbortUpload(ctx, u.key, id) }
