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
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/varve/varve/tiering/objstore"
)

const (
	// tempLife: a temporary file untouched for so long belongs to nobody that runs, as no upload's deadline is near it.
	tempLife = 24 * time.Hour
	// linkTries bounds the races of Create with the removal of an empty directory.
	linkTries = 10
)

// Store is a directory.
type Store struct {
	root string
}

// New opens the directory of a file:// URL. The directory must be there (ErrNoBucket) unless its parent is: then it is made,
// as varve dev starts on an empty disk.
func New(_ context.Context, l objstore.Location, _ objstore.Credentials) (objstore.Store, error) {
	s := &Store{root: l.Dir}
	if err := os.Mkdir(l.Dir, 0o755); err == nil {
		if err := syncDir(filepath.Dir(l.Dir)); err != nil {
			return nil, fail("open", l.Dir, err)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, s.failRoot(err)
	}
	if info, err := os.Stat(l.Dir); err != nil {
		return nil, s.failRoot(err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("bucket %s: %w: %s is no directory", l, objstore.ErrNoBucket, l.Dir)
	}
	if err := os.MkdirAll(filepath.Join(l.Dir, TempDir), 0o755); err != nil {
		return nil, s.failRoot(err)
	}
	if err := s.probeLinks(); err != nil {
		return nil, err
	}
	s.removeOldTemps()
	return s, nil
}

func (s *Store) failRoot(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bucket directory %s: %w: create it (%w)", s.root, objstore.ErrNoBucket, err)
	}
	return fail("open", s.root, err)
}

// probeLinks refuses a file system without hard links: create-if-absent (O1) needs them.
func (s *Store) probeLinks() error {
	f, err := s.temp()
	if err != nil {
		return fail("open", s.root, err)
	}
	defer os.Remove(f.Name())
	f.Close()
	other := f.Name() + ".link"
	if err := os.Link(f.Name(), other); err != nil {
		return fmt.Errorf("bucket directory %s: %w: its file system has no hard links: use another directory (%w)", s.root, objstore.ErrRejected, err)
	}
	return os.Remove(other)
}

// removeOldTemps removes what crashed uploads left. Best effort: they only cost space.
func (s *Store) removeOldTemps() {
	entries, _ := os.ReadDir(filepath.Join(s.root, TempDir))
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > tempLife {
			_ = os.Remove(filepath.Join(s.root, TempDir, e.Name()))
		}
	}
}

func (s *Store) temp() (*os.File, error) {
	return os.OpenFile(filepath.Join(s.root, TempDir, uuid.NewString()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
}

// fail maps an error of the file system onto the sentinels.
func fail(op objstore.Op, what string, err error) error {
	class := objstore.ErrUnavailable
	switch {
	case errors.Is(err, fs.ErrNotExist):
		class = objstore.ErrNotFound
	case errors.Is(err, fs.ErrExist):
		class = objstore.ErrExists
	case errors.Is(err, fs.ErrPermission):
		class = objstore.ErrDenied
	}
	return fmt.Errorf("%s %s: %w: %w", op, what, class, err)
}

func begin(ctx context.Context, op objstore.Op, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w: %w", op, key, objstore.ErrUnavailable, err)
	}
	if err := objstore.CheckKey(key); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

func (s *Store) Create(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) error {
	if err := begin(ctx, objstore.OpCreate, key); err != nil {
		return err
	}
	meta, crc, err := objstore.StoredMetadata(body, o)
	if err != nil {
		return fmt.Errorf("create %s: %w", key, err)
	}
	// Large bodies announce an id as every driver does: the temporary file's name, by which AbortUpload would find it.
	f, err := s.temp()
	if err != nil {
		return s.failWrite(key, err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if body.Size() > objstore.MaxSingleShot && o.OnMultipart != nil {
		id := filepath.Base(f.Name())
		if err := o.OnMultipart(id); err != nil {
			return fmt.Errorf("create %s: announce upload %s: %w", key, id, err)
		}
	}
	v := objstore.NewVerifiedBody(body, crc)
	defer v.Close()
	if err := writeObject(ctx, f, v, body.Size(), meta); err != nil {
		if v.Err() != nil || errors.Is(err, objstore.ErrUnavailable) {
			return fmt.Errorf("create %s: %w", key, err)
		}
		return s.failWrite(key, err)
	}
	return s.publish(f.Name(), key)
}

// failWrite: nothing is linked yet, so whatever went wrong, nothing was applied. A missing place is the directory itself.
func (s *Store) failWrite(key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("create %s: %w: %w", key, objstore.ErrNoBucket, err)
	}
	return fail(objstore.OpCreate, key, err)
}

// writeObject writes and syncs the whole file.
func writeObject(ctx context.Context, f *os.File, body io.Reader, size int64, meta map[string]string) error {
	w := newWriter(f, size)
	defer w.release()
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: %w", objstore.ErrUnavailable, err)
		}
		n, err := body.Read(w.space())
		if werr := w.filled(n); werr != nil {
			return werr
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	tail, err := appendTail(nil, size, meta)
	if err != nil {
		return err
	}
	if err := w.end(tail); err != nil {
		return err
	}
	return f.Sync()
}

// publish links the complete file to its name (D1) and syncs the directory (D3). Directories that were made on the way are
// synced from the top down, before the link, so that no durable link hangs in a directory that is not.
func (s *Store) publish(temp, key string) error {
	target := s.file(key)
	parent := filepath.Dir(target)
	for try := 1; ; try++ {
		if err := s.makeDirs(parent); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s.failWrite(key, err)
		}
		err := os.Link(temp, target)
		if err == nil {
			break
		}
		// Delete may have removed the directory, empty until now, between the two steps.
		if errors.Is(err, fs.ErrNotExist) && try < linkTries {
			continue
		}
		return s.failWrite(key, err)
	}
	if err := syncDir(parent); err != nil {
		return fmt.Errorf("create %s: sync directory: %w: %w", key, objstore.ErrUnknownOutcome, err)
	}
	return nil
}

// makeDirs makes the missing directories from root to dir and syncs the parent of each. One that is there already may have
// been made by another call that has not synced its parent yet: so each parent is synced once by every process
// that relies on it, unless the directory holds an entry already, whose creator synced it.
func (s *Store) makeDirs(dir string) error {
	rel, err := filepath.Rel(s.root, dir)
	if err != nil || rel == "." {
		return err
	}
	at := s.root
	for _, name := range strings.Split(rel, string(filepath.Separator)) {
		parent := at
		at = filepath.Join(at, name)
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		} else if err == nil || isEmpty(at) {
			if err := syncDir(parent); err != nil {
				return err
			}
		}
	}
	return nil
}

func isEmpty(dir string) bool {
	d, err := os.Open(dir)
	if err != nil {
		return true
	}
	defer d.Close()
	names, _ := d.Readdirnames(1)
	return len(names) == 0
}
