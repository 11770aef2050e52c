// SPDX-License-Identifier: Apache-2.0

// Package aws is the driver of s3:// URLs, on aws-sdk-go-v2 with its whole credential chain (environment, shared files,
// SSO, web identity, container and instance roles): credentials rotate without a restart.
//
// It does not retry, although the SDK could: Retry owns that (O6). It uses no transfer manager, which would choose its own
// checksums (faults D1). Over https a body is sent unsigned, in one pass; over http it is read twice, as the signature then
// is what protects it on the way.
package aws
