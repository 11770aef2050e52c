// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/varve/varve/tiering/objstore"
)

// open opens the file of a key and reads its trailer.
func (s *Store) open(ctx context.Context, op objstore.Op, key string) (*os.File, tail, error) {
	if err := begin(ctx, op, key); err != nil {
		return nil, tail{}, err
	}
	f, err := os.Open(s.file(key))
	if errors.Is(err, fs.ErrNotExist) {
		// A directory that is gone (not mounted) says nothing about its objects (O2).
		if _, rerr := os.Stat(filepath.Join(s.root, TempDir)); rerr != nil {
			return nil, tail{}, fmt.Errorf("%s %s: %w: %w", op, key, objstore.ErrNoBucket, rerr)
		}
	}
	if err != nil {
		return nil, tail{}, fail(op, key, err)
	}
	t, err := readTrailer(f)
	if err == nil {
		return f, t, nil
	}
	f.Close()
	if errors.Is(err, objstore.ErrCorrupt) {
		return nil, tail{}, fmt.Errorf("%s %s: %w", op, key, err)
	}
	return nil, tail{}, fail(op, key, err)
}

func (s *Store) Get(ctx context.Context, key string, off, n int64, dst []byte) ([]byte, error) {
	f, t, err := s.open(ctx, objstore.OpGet, key)
	if err != nil {
		return dst, err
	}
	defer f.Close()
	if off < 0 || n < 0 || off > t.size || n > t.size-off {
		return dst, fmt.Errorf("get %s: %w: [%d,+%d) of %d", key, objstore.ErrRange, off, n, t.size)
	}
	got, err := objstore.AppendBody(dst, io.NewSectionReader(f, off, n), n)
	if err != nil {
		return dst, fmt.Errorf("get %s: %w", key, err)
	}
	return got, nil
}

func (s *Store) Stat(ctx context.Context, key string) (objstore.Info, error) {
	f, t, err := s.open(ctx, objstore.OpStat, key)
	if err != nil {
		return objstore.Info{}, err
	}
	defer f.Close()
	meta, err := readMetadata(f, t)
	if err != nil {
		return objstore.Info{}, fmt.Errorf("stat %s: %w", key, err)
	}
	info, err := f.Stat()
	if err != nil {
		return objstore.Info{}, fail(objstore.OpStat, key, err)
	}
	return objstore.Info{Key: key, Size: t.size, Modified: info.ModTime(), Metadata: meta}, nil
}

// List walks the directories in the order of keys; its memory is one level's names at a time.
func (s *Store) List(ctx context.Context, prefix, startAfter string, fn func(objstore.Info) error) error {
	if _, err := os.Stat(filepath.Join(s.root, TempDir)); err != nil {
		return s.failRoot(err)
	}
	return objstore.ListEnd(s.walk(ctx, s.root, "", listing{prefix: prefix, after: startAfter, fn: fn}))
}

type listing struct {
	prefix, after string
	fn            func(objstore.Info) error
}

// entry is an object, or a directory whose keys all begin with key (which then ends in a slash).
type entry struct {
	key, path string
	dir       bool
}

func (s *Store) walk(ctx context.Context, dir, keyPrefix string, l listing) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("list: %w: %w", objstore.ErrUnavailable, err)
	}
	entries, err := s.entries(dir, keyPrefix)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.dir {
			if !l.mayHold(e.key) {
				continue
			}
			if err := s.walk(ctx, e.path, e.key, l); err != nil {
				return err
			}
		} else if strings.HasPrefix(e.key, l.prefix) && e.key > l.after {
			if err := s.emit(ctx, e, l.fn); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayHold: some key that begins with dir (which ends in a slash) may be asked for.
func (l listing) mayHold(dir string) bool {
	if !strings.HasPrefix(dir, l.prefix) && !strings.HasPrefix(l.prefix, dir) {
		return false
	}
	return dir > l.after || strings.HasPrefix(l.after, dir)
}

func (s *Store) emit(ctx context.Context, e entry, fn func(objstore.Info) error) error {
	f, t, err := s.open(ctx, objstore.OpList, e.key)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil // deleted since the directory was read
	}
	if errors.Is(err, objstore.ErrCorrupt) {
		// It is there, whatever it holds: a listing finds what may be deleted, so it must not stop here.
		return fn(objstore.Info{Key: e.key})
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	f.Close()
	if err != nil {
		return fail(objstore.OpList, e.key, err)
	}
	return fn(objstore.Info{Key: e.key, Size: t.size, Modified: info.ModTime()})
}

// entries reads one level, with the directories that only continue a long name opened up, in the order of keys.
func (s *Store) entries(dir, keyPrefix string) ([]entry, error) {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // removed since its parent was read
	}
	if err != nil {
		return nil, fail(objstore.OpList, dir, err)
	}
	var out []entry
	for _, n := range names {
		name, path := n.Name(), filepath.Join(dir, n.Name())
		base, object := strings.CutSuffix(name, objectSuffix)
		base, joined := strings.CutSuffix(base, joinSuffix)
		part, ok := unescapeName(base)
		if !ok || part == "" || n.IsDir() == object || (object && joined) || strings.HasPrefix(name, ".") {
			continue // not ours
		}
		switch key := keyPrefix + part; {
		case object:
			if s.file(key) == path {
				out = append(out, entry{key: key, path: path})
			}
		case joined:
			more, err := s.entries(path, key)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		default:
			out = append(out, entry{key: key + "/", path: path, dir: true})
		}
	}
	slices.SortFunc(out, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	return out, nil
}

// Delete removes the files and then, once each, syncs the directories (D3). Directories left empty are removed.
func (s *Store) Delete(ctx context.Context, keys []string) []error {
	errs := make([]error, len(keys))
	touched := map[string][]int{}
	for i, key := range keys {
		if errs[i] = begin(ctx, objstore.OpDelete, key); errs[i] != nil {
			continue
		}
		path := s.file(key)
		switch err := os.Remove(path); {
		case err == nil, errors.Is(err, fs.ErrNotExist):
			// Also when it was gone: an earlier removal may not have been synced.
			touched[filepath.Dir(path)] = append(touched[filepath.Dir(path)], i)
		default:
			errs[i] = fail(objstore.OpDelete, key, err)
		}
	}
	for dir, indexes := range touched {
		err := s.settle(dir)
		if err == nil {
			continue
		}
		class := objstore.ErrUnknownOutcome
		if errors.Is(err, fs.ErrNotExist) {
			class = objstore.ErrNoBucket // not even the root is there
		}
		for _, i := range indexes {
			errs[i] = fmt.Errorf("delete %s: sync directory: %w: %w", keys[i], class, err)
		}
	}
	return errs
}

// settle syncs a directory, or the nearest one above it that is there, then removes it and those above while they are empty.
func (s *Store) settle(dir string) error {
	for {
		err := syncDir(dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == s.root {
			return err
		}
		dir = filepath.Dir(dir)
	}
	for dir != s.root && os.Remove(dir) == nil { // fails on a directory that is not empty
		dir = filepath.Dir(dir)
	}
	return nil
}

// AbortUpload removes what an upload left, if anything.
func (s *Store) AbortUpload(ctx context.Context, key, uploadID string) error {
	if err := begin(ctx, objstore.OpAbort, key); err != nil {
		return err
	}
	if strings.ContainsAny(uploadID, `/\.`) || uploadID == "" {
		return fmt.Errorf("abort %s: %w: upload id %q", key, objstore.ErrRejected, uploadID)
	}
	err := os.Remove(filepath.Join(s.root, TempDir, uploadID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(objstore.OpAbort, key, err)
	}
	return nil
}

// Close releases nothing.
func (s *Store) Close() error { return nil }
