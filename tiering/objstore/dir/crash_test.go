// SPDX-License-Identifier: Apache-2.0

package dir_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/dir"
	"github.com/varve/varve/tiering/objstore/objstoretest"
)

func create(t testing.TB, s objstore.Store, key, value string) {
	t.Helper()
	if err := s.Create(t.Context(), key, objstore.Bytes([]byte(value)), objstore.PutOptions{}); err != nil {
		t.Fatalf("create %s: %v", key, err)
	}
}

// Keys that a file system would take for one, or for a directory, are each their own.
func TestNeighbours(t *testing.T) {
	s := open(t, t.TempDir())
	keys := []string{"a", "A", "a/b", "a/B", "a@", "a+", "a+/b", "a.", ".a", "con", "CON", "con/con", strings.Repeat("a", 200), strings.Repeat("a", 200) + "-b",
		strings.Repeat("a", 200) + "/b", strings.Repeat("a", 201), strings.Repeat("a", 200) + "b/c", strings.Repeat("É", 400)}
	for _, key := range keys {
		create(t, s, key, key)
	}
	last, n := "", 0
	err := s.List(t.Context(), "", "", func(i objstore.Info) error {
		if n++; i.Key <= last {
			t.Errorf("%q is listed after %q", i.Key, last)
		}
		last = i.Key
		return nil
	})
	if err != nil || n != len(keys) {
		t.Fatalf("listed %d of %d: %v", n, len(keys), err)
	}
	for _, key := range keys {
		if got, err := s.Get(t.Context(), key, 0, int64(len(key)), nil); err != nil || string(got) != key {
			t.Errorf("%q: %q, %v", key, got, err)
		}
	}
	// startAfter inside a name that is continued in a directory.
	var after []string
	_ = s.List(t.Context(), strings.Repeat("a", 200), strings.Repeat("a", 200), func(i objstore.Info) error { after = append(after, i.Key[200:]); return nil })
	if want := "-b,/b,a,b/c"; strings.Join(after, ",") != want {
		t.Errorf("after the long name: %q, want %q", after, want)
	}
}

func TestOpenErrors(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{filepath.Join(base, "absent", "dir"): objstore.ErrNoBucket, file: objstore.ErrNoBucket, filepath.Join(base, "new"): nil} {
		_, err := dir.New(context.Background(), objstore.Location{Scheme: objstore.SchemeFile, Dir: path}, objstore.Credentials{})
		if want == nil && err != nil || !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %v", path, err)
		}
	}
}

// A directory that is gone, as when its disk is not mounted, is not an empty store (O2).
func TestDirectoryGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bucket")
	s := open(t, path)
	create(t, s, "k", "v")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	_, gerr := s.Get(t.Context(), "k", 0, 1, nil)
	_, serr := s.Stat(t.Context(), "k")
	for what, err := range map[string]error{"get": gerr, "stat": serr,
		"create": s.Create(t.Context(), "l", objstore.Bytes(nil), objstore.PutOptions{}),
		"list":   s.List(t.Context(), "", "", func(objstore.Info) error { return nil }),
		"delete": s.Delete(t.Context(), []string{"k"})[0],
		"check":  objstore.Check(t.Context(), s, objstore.Location{Scheme: objstore.SchemeFile, Dir: path})} {
		if !errors.Is(err, objstore.ErrNoBucket) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A file that a copy cut short or changed is corrupt, never a shorter object; a listing shows it, so that it can be deleted.
func TestDamagedFiles(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	for _, damage := range []struct {
		name string
		do   func([]byte) []byte
		get  bool // the range read of the bytes still works: the damage is in the metadata only
	}{
		{"cut", func(b []byte) []byte { return b[:len(b)/2] }, false},
		{"cut by one", func(b []byte) []byte { return b[:len(b)-1] }, false},
		{"emptied", func([]byte) []byte { return nil }, false},
		{"grown in the middle", func(b []byte) []byte { return append([]byte("x"), b...) }, false},
		{"metadata", func(b []byte) []byte { b[102] ^= 1; return b }, true},
		{"newer format", func(b []byte) []byte { binary.LittleEndian.PutUint32(b[len(b)-12:], 2); return b }, false},
	} {
		create(t, s, damage.name, strings.Repeat("x", 100))
		path := filepath.Join(root, strings.ReplaceAll(damage.name, " ", "%20")+"@")
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, damage.do(raw), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Stat(t.Context(), damage.name); !errors.Is(err, objstore.ErrCorrupt) {
			t.Errorf("%s: stat: %v", damage.name, err)
		} else if damage.name == "newer format" && !strings.Contains(err.Error(), "format 2") {
			t.Errorf("%s: %v", damage.name, err)
		}
		if _, err := s.Get(t.Context(), damage.name, 0, 100, nil); (err == nil) != damage.get || err != nil && !errors.Is(err, objstore.ErrCorrupt) {
			t.Errorf("%s: get: %v", damage.name, err)
		}
		seen := 0
		if err := s.List(t.Context(), damage.name, "", func(i objstore.Info) error { seen++; return nil }); err != nil || seen == 0 {
			t.Errorf("%s: listed %d, %v", damage.name, seen, err)
		}
		if err := s.Delete(t.Context(), []string{damage.name})[0]; err != nil {
			t.Errorf("%s: delete: %v", damage.name, err)
		}
	}
}

// Temporary files are never objects; a start removes those that nobody can be writing any more.
func TestTemporaryFiles(t *testing.T) {
	root := t.TempDir()
	open(t, root)
	old, young := filepath.Join(root, ".varve-tmp", "old"), filepath.Join(root, ".varve-tmp", "young")
	for _, path := range []string{old, young} {
		if err := os.WriteFile(path, []byte("half an obj"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	s := open(t, root)
	if _, err := os.Stat(old); err == nil {
		t.Error("the old one is still there")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error("the young one is gone")
	}
	if err := s.List(t.Context(), "", "", func(i objstore.Info) error { return fmt.Errorf("listed %s", i.Key) }); err != nil {
		t.Error(err)
	}
	create(t, s, "k", "v")
	left, err := os.ReadDir(filepath.Join(root, ".varve-tmp"))
	if err != nil || len(left) != 1 {
		t.Errorf("%d temporary files after a create, want the young one: %v", len(left), err)
	}
}

// Create and Delete in one directory, which is removed whenever it is empty, by two stores as in two processes.
func TestDirectoriesComeAndGo(t *testing.T) {
	root := t.TempDir()
	stores := []objstore.Store{open(t, root), open(t, root)}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s := stores[i%2]
			for j := range 60 {
				key := fmt.Sprintf("x/y/%d-%d", i, j)
				if err := s.Create(t.Context(), key, objstore.Bytes([]byte(key)), objstore.PutOptions{}); err != nil {
					t.Errorf("create: %v", err)
				}
				if _, err := s.Stat(t.Context(), key); err != nil {
					t.Errorf("stat: %v", err)
				}
				if err := s.Delete(t.Context(), []string{key})[0]; err != nil {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if left, _ := os.ReadDir(root); len(left) != 1 {
		t.Errorf("%d entries left, want the directory of temporary files only", len(left))
	}
}

const childEnv = "VARVE_DIR_TEST_CHILD"

// TestKilled kills a process that creates objects, again and again: what it reported is there, and nothing is there in part.
func TestKilled(t *testing.T) {
	if root := os.Getenv(childEnv); root != "" {
		createForEver(t, root)
	}
	if runtime.GOOS == "windows" {
		t.Skip("skipped: the child is ended by a signal")
	}
	root := t.TempDir()
	acknowledged := map[string]bool{}
	for round := range 5 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), childEnv+"="+root, fmt.Sprint("ROUND=", round))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if key, ok := strings.CutPrefix(lines.Text(), "created "); ok {
				acknowledged[key] = true
			}
			if n == 20+7*round {
				_ = cmd.Process.Kill() // what the pipe still holds is read too
			}
		}
		_ = cmd.Wait()
	}
	s := open(t, root)
	seen := 0
	err := s.List(t.Context(), "", "", func(i objstore.Info) error {
		seen++
		delete(acknowledged, i.Key)
		got, err := s.Get(t.Context(), i.Key, 0, i.Size, nil)
		if err != nil || !bytes.Equal(got, objstoretest.Content(childBody(i.Key))) {
			return fmt.Errorf("object %s: %w, or other bytes", i.Key, err)
		}
		return nil
	})
	if err != nil || len(acknowledged) != 0 || seen < 100 {
		t.Fatalf("%d objects, acknowledged and missing: %v, %v", seen, acknowledged, err)
	}
	t.Logf("%d objects after 5 kills", seen)
}

func childBody(key string) objstore.Body {
	sum := uint64(objstore.CRC32C([]byte(key)))
	return objstoretest.Random(sum, int64(sum%200_000))
}

func createForEver(t *testing.T, root string) {
	s := open(t, root)
	for i := 0; ; i++ {
		key := fmt.Sprintf("round-%s/%d/object-%d", os.Getenv("ROUND"), i%5, i)
		if err := s.Create(t.Context(), key, childBody(key), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		fmt.Println("created " + key)
	}
}
