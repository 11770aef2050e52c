// SPDX-License-Identifier: Apache-2.0

// Package mem is the object store of mem:// URLs: objects in the memory of this process. Stores of one name share their
// objects, so that several nodes of one test process see one bucket.
//
// It is for tests: nothing survives the process. It has no multipart upload of its own; to keep callers honest it calls
// OnMultipart for bodies above the single-shot limit like any other driver.
package mem
