// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/aws"
	"github.com/varve/varve/tiering/objstore/dir"
	"github.com/varve/varve/tiering/objstore/mem"
	"github.com/varve/varve/tiering/objstore/minio"
)

// drivers are the object stores that a bucket URL may name.
var drivers = map[objstore.Scheme]func(context.Context, objstore.Location, objstore.Credentials) (objstore.Store, error){
	objstore.SchemeS3:    aws.New,
	objstore.SchemeMinio: minio.New,
	objstore.SchemeFile:  dir.New,
	objstore.SchemeMem:   mem.New,
}

// openStore opens the bare driver of a bucket URL; credentialsFile may be empty.
func openStore(ctx context.Context, at objstore.Location, credentialsFile string) (objstore.Store, error) {
	return drivers[at.Scheme](ctx, at, objstore.Credentials{File: credentialsFile})
}
