// SPDX-License-Identifier: Apache-2.0

// Package minio is the driver of minio:// URLs, on minio-go: any S3-compatible store by host and port. Over http bodies are
// sent with chunk signatures, in one pass.
//
// It does not retry (MaxRetries is 1; O6) and sends no trailing headers, which some stores refuse. Credentials come from
// MINIO_ACCESS_KEY and MINIO_SECRET_KEY, the AWS_* variables or a file.
package minio
