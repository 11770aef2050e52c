// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/varve/varve/tiering/objstore"
)

// object is what dump reads: any range of something of a known size.
type object interface {
	Size() int64
	Range(ctx context.Context, off, n int64) ([]byte, error)
	Close() error
}

func newSegmentDumpCommand(s *streams) *cobra.Command {
	var d dump
	cmd := &cobra.Command{
		Use:   "dump URL|FILE",
		Short: "Open one segment object and check every byte of it",
		Long: "Reads a segment from a bucket, by the URL that `varve segment list` shows, or from a file. Shows header, footer, indexes and\n" +
			"batches and verifies all checksums; ends with code 1 when one does not hold. A bucket in a directory keeps objects under other\n" +
			"names than their keys: DIR/KEY is found as well as the file itself.",
		Example: "  varve segment dump varve-data/bucket/CLUSTER/…/SEGMENT\n" +
			"  varve segment dump 's3://logs/prefix/CLUSTER/…/SEGMENT?region=eu-central-1'",
		Args: exactArgs("URL|FILE"),
	}
	f := cmd.Flags()
	f.BoolVar(&d.summary, "summary", false, "header and footer only; the data is not read")
	f.BoolVar(&d.records, "records", false, "each record too")
	f.StringVar(&d.credentials, "bucket-credentials", "", "`FILE` with the bucket's credentials")
	addConnection(cmd) // accepted as by every client command; a segment needs no broker
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if d.summary && d.records {
			return usagef("--summary and --records exclude each other")
		}
		o, err := openObject(cmd.Context(), args[0], d.credentials)
		if err != nil {
			return err
		}
		defer o.Close()
		d.object, d.out, d.json = o, s.out, *out == outputJSON
		return d.run(cmd.Context())
	}
	return cmd
}

func openObject(ctx context.Context, arg, credentials string) (object, error) {
	if !strings.Contains(arg, "://") {
		if _, err := os.Stat(arg); !errors.Is(err, os.ErrNotExist) {
			return openFile(arg)
		}
		path, err := filepath.Abs(arg)
		if err != nil {
			return nil, err
		}
		arg = (&url.URL{Scheme: string(objstore.SchemeFile), Path: "/" + strings.TrimPrefix(filepath.ToSlash(path), "/")}).String()
	}
	at, err := objstore.ParseURL(arg)
	if err != nil {
		return nil, usagef("%s", err)
	}
	if at.Scheme == objstore.SchemeFile {
		if _, err := os.Stat(at.Dir); err == nil {
			return openFile(at.Dir)
		}
	}
	at, key, err := splitKey(at)
	if err != nil {
		return nil, err
	}
	store, err := openStore(ctx, at, credentials)
	if err != nil {
		return nil, err
	}
	info, err := store.Stat(ctx, key)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", arg, err), store.Close())
	}
	return &storedObject{store: store, key: key, size: info.Size}, nil
}

// splitKey takes the object's key off the end of a bucket URL.
func splitKey(at objstore.Location) (objstore.Location, string, error) {
	if at.Scheme != objstore.SchemeFile {
		key := strings.Trim(at.Prefix, "/")
		if key == "" {
			return at, "", usagef("%s names a bucket; the object's key must follow, as `varve segment list` shows it", at)
		}
		at.Prefix = ""
		return at, key, nil
	}
	// A directory stores keys under other names, so that the bucket must be found: it is where clusters/ is.
	for root := filepath.Dir(at.Dir); ; root = filepath.Dir(root) {
		if info, err := os.Stat(filepath.Join(root, "clusters")); err == nil && info.IsDir() {
			key := strings.TrimPrefix(filepath.ToSlash(strings.TrimPrefix(at.Dir, root)), "/")
			at.Dir = root
			return at, key, nil
		}
		if root == filepath.Dir(root) {
			return at, "", fmt.Errorf("%s: no such file, and no bucket on the way to it", at)
		}
	}
}

type storedObject struct {
	store objstore.Store
	key   string
	size  int64
}

func (o *storedObject) Size() int64  { return o.size }
func (o *storedObject) Close() error { return o.store.Close() }
func (o *storedObject) Range(ctx context.Context, off, n int64) ([]byte, error) {
	return o.store.Get(ctx, o.key, off, n, nil)
}

type fileObject struct {
	*os.File
	size int64
}

func openFile(name string) (object, error) {
	f, err := os.Open(filepath.Clean(name))
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", name)
	}
	o := &fileObject{File: f}
	if err == nil {
		o.size, err = segmentSize(f, info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return o, nil
}

// segmentSize is where the segment in a file ends: a bucket in a directory keeps an object's metadata behind its bytes. A file
// without the mark of a segment's end is taken whole, for the reader to say what is wrong with it.
func segmentSize(f io.ReaderAt, size int64) (int64, error) {
	const endMark = "VARVSEGE" // docs/formats/segment.md
	tail := make([]byte, min(size, maxBehindSegment))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if at := bytes.LastIndex(tail, []byte(endMark)); at >= 0 {
		return size - int64(len(tail)) + int64(at+len(endMark)), nil
	}
	return size, nil
}

func (o *fileObject) Size() int64 { return o.size }
func (o *fileObject) Range(_ context.Context, off, n int64) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(o.File, off, n), b); err != nil {
		return nil, fmt.Errorf("reading %d bytes at %d: %w", n, off, err)
	}
	return b, nil
}
