// SPDX-License-Identifier: Apache-2.0

package mem

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/varve/varve/tiering/objstore"
)

// named holds the shared stores of mem://name. The unnamed mem:// is private to its opener.
var named struct {
	sync.Mutex
	stores map[string]*Store
}

// New opens the store of a mem:// URL.
func New(_ context.Context, l objstore.Location, _ objstore.Credentials) (objstore.Store, error) {
	if l.Bucket == "" {
		return NewStore(), nil
	}
	named.Lock()
	defer named.Unlock()
	if named.stores == nil {
		named.stores = map[string]*Store{}
	}
	s := named.stores[l.Bucket]
	if s == nil {
		s = NewStore()
		named.stores[l.Bucket] = s
	}
	return s, nil
}

type object struct {
	data     []byte
	modified time.Time
	metadata map[string]string
}

// Store keeps objects in memory.
type Store struct {
	mu struct {
		sync.RWMutex
		objects map[string]object
		uploads int
	}
}

// NewStore returns an empty store.
func NewStore() *Store {
	s := &Store{}
	s.mu.objects = map[string]object{}
	return s
}

// Create reads the body outside the lock and decides under it.
func (s *Store) Create(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) error {
	if err := s.begin(ctx, objstore.OpCreate, key); err != nil {
		return err
	}
	meta, crc, err := objstore.StoredMetadata(body, o)
	if err != nil {
		return fmt.Errorf("create %s: %w", key, err)
	}
	if body.Size() > objstore.MaxSingleShot && o.OnMultipart != nil {
		s.mu.Lock()
		s.mu.uploads++
		id := fmt.Sprintf("mem-%d", s.mu.uploads)
		s.mu.Unlock()
		if err := o.OnMultipart(id); err != nil {
			return fmt.Errorf("create %s: announce upload %s: %w", key, id, err)
		}
	}
	data, err := readBody(body)
	if err != nil {
		return fmt.Errorf("create %s: %w", key, err)
	}
	if objstore.CRC32C(data) != crc {
		return fmt.Errorf("create %s: %w: body does not have the checksum %s", key, objstore.ErrCorrupt, objstore.FormatCRC(crc))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.mu.objects[key]; ok {
		return fmt.Errorf("create %s: %w", key, objstore.ErrExists)
	}
	s.mu.objects[key] = object{data: data, modified: time.Now(), metadata: meta}
	return nil
}

func readBody(body objstore.Body) ([]byte, error) {
	r, err := body.Open()
	if err != nil {
		return nil, fmt.Errorf("open body: %w", err)
	}
	defer r.Close()
	data := make([]byte, body.Size())
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("%w: read body: %w", objstore.ErrCorrupt, err)
	}
	if n, _ := r.Read(make([]byte, 1)); n != 0 {
		return nil, fmt.Errorf("%w: body is longer than the %d bytes it promised", objstore.ErrCorrupt, len(data))
	}
	return data, nil
}

// begin does what every call does first.
func (s *Store) begin(ctx context.Context, op objstore.Op, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w: %w", op, key, objstore.ErrUnavailable, err)
	}
	if err := objstore.CheckKey(key); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

func (s *Store) lookup(ctx context.Context, op objstore.Op, key string) (object, error) {
	if err := s.begin(ctx, op, key); err != nil {
		return object{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.mu.objects[key]
	if !ok {
		return object{}, fmt.Errorf("%s %s: %w", op, key, objstore.ErrNotFound)
	}
	return o, nil
}

func (s *Store) Get(ctx context.Context, key string, off, n int64, dst []byte) ([]byte, error) {
	o, err := s.lookup(ctx, objstore.OpGet, key)
	if err != nil {
		return dst, err
	}
	if off < 0 || n < 0 || off > int64(len(o.data)) || n > int64(len(o.data))-off {
		return dst, fmt.Errorf("get %s: %w: [%d,+%d) of %d", key, objstore.ErrRange, off, n, len(o.data))
	}
	return append(dst, o.data[off:off+n]...), nil
}

func (s *Store) Stat(ctx context.Context, key string) (objstore.Info, error) {
	o, err := s.lookup(ctx, objstore.OpStat, key)
	if err != nil {
		return objstore.Info{}, err
	}
	return objstore.Info{Key: key, Size: int64(len(o.data)), Modified: o.modified, Metadata: maps.Clone(o.metadata)}, nil
}

// List calls fn without the lock, on what was there when the listing began.
func (s *Store) List(ctx context.Context, prefix, startAfter string, fn func(objstore.Info) error) error {
	s.mu.RLock()
	var found []objstore.Info
	for key, o := range s.mu.objects {
		if strings.HasPrefix(key, prefix) && key > startAfter {
			found = append(found, objstore.Info{Key: key, Size: int64(len(o.data)), Modified: o.modified})
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(found, func(a, b objstore.Info) int { return strings.Compare(a.Key, b.Key) })
	return objstore.Emit(ctx, found, fn)
}

func (s *Store) Delete(ctx context.Context, keys []string) []error {
	errs := make([]error, len(keys))
	for i, key := range keys {
		if errs[i] = s.begin(ctx, objstore.OpDelete, key); errs[i] == nil {
			s.mu.Lock()
			delete(s.mu.objects, key)
			s.mu.Unlock()
		}
	}
	return errs
}

// AbortUpload has nothing to free.
func (s *Store) AbortUpload(ctx context.Context, key, _ string) error {
	return s.begin(ctx, objstore.OpAbort, key)
}

// Close keeps the objects: another opener of the name may use them.
func (s *Store) Close() error { return nil }
