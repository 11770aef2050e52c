// SPDX-License-Identifier: Apache-2.0

// Package objstore is the seam to the object store: the Store interface, its errors, the bucket URL, the resolution of
// uploads whose outcome is unknown, and the decorators every driver is wrapped in (Retry, Limit, Metrics, Fault).
//
// Drivers live in the subpackages aws, minio, dir and mem; objstoretest holds the suite that each of them, and each
// decorator, passes. The package knows nothing of segments, manifests or topics, never lists to find out what exists
// (only to find what may be deleted), and does not use a store's conditional writes as the only fence: the metadata
// store is the fence, the condition is a second line.
//
// Invariants:
//
//   - O1: Create writes an object only where there is none; no object is ever overwritten, by any method.
//   - O2: "not there" (ErrNotFound) and "could not find out" (ErrUnavailable) are never confused.
//   - O3: ErrUnavailable from a mutation means it surely was not applied; what may have been applied is ErrUnknownOutcome.
//   - O4: Get returns exactly the bytes asked for or an error; a short body is an error, never a short result.
//   - O5: Delete reports each key for itself; nil means that the store confirmed that the key is gone.
//   - O6: a Store never retries by itself and never outlives its context; retries and deadlines belong to the decorators.
package objstore
