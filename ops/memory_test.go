// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"errors"
	"testing"
	"testing/fstest"
)

func TestCgroupMemoryLimit(t *testing.T) {
	files := func(pairs ...string) fstest.MapFS {
		m := fstest.MapFS{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
		}
		return m
	}
	const none = "9223372036854771712\n"
	for name, c := range map[string]struct {
		root fstest.MapFS
		want int64 // 0: no limit
	}{
		"not Linux":             {files(), 0},
		"v2":                    {files("proc/self/cgroup", "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max", "536870912\n"), 512 << 20},
		"v2 max":                {files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "max\n"), 0},
		"v2 parent is lower":    {files("proc/self/cgroup", "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max", "max\n", "sys/fs/cgroup/a/memory.max", "1000000\n"), 1000000},
		"v2 child is lower":     {files("proc/self/cgroup", "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max", "1000\n", "sys/fs/cgroup/a/memory.max", "1000000\n"), 1000},
		"v2 in a container":     {files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "2000\n"), 2000},
		"v2 path not mounted":   {files("proc/self/cgroup", "0::/docker/abc\n", "sys/fs/cgroup/memory.max", "2000\n"), 2000},
		"v1":                    {files("proc/self/cgroup", "9:cpu,cpuacct:/x\n5:memory:/x/y\n", "sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "3000\n"), 3000},
		"v1 no limit":           {files("proc/self/cgroup", "5:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes", none), 0},
		"v1 path not mounted":   {files("proc/self/cgroup", "5:memory:/docker/abc\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", "4000\n"), 4000},
		"hybrid, v1 has memory": {files("proc/self/cgroup", "5:memory:/x\n0::/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes", "5000\n"), 5000},
		"hybrid, v2 is unified": {files("proc/self/cgroup", "1:name=systemd:/x\n0::/x\n", "sys/fs/cgroup/unified/x/memory.max", "6000\n"), 6000},
		"another controller":    {files("proc/self/cgroup", "5:notmemory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes", "7000\n"), 0},
	} {
		got, ok, err := CgroupMemoryLimit(c.root)
		if err != nil || ok != (c.want > 0) || ok && got != c.want {
			t.Errorf("%s: %d %v %v, want %d", name, got, ok, err, c.want)
		}
	}
	if _, _, err := CgroupMemoryLimit(files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "lots\n")); err == nil {
		t.Error("a limit that is no number is accepted")
	}
}

func TestGoMemoryLimit(t *testing.T) {
	got, err := GoMemoryLimit(512<<20, OffHeap{MemTableBytes: 16 << 20, CacheBytes: 64 << 20})
	if want := int64(512-4*16-64) << 20 * 3 / 4; err != nil || got != want {
		t.Errorf("%d %v, want %d", got, err, want)
	}
	if _, err := GoMemoryLimit(128<<20, OffHeap{MemTableBytes: 16 << 20, CacheBytes: 64 << 20}); !errors.Is(err, ErrMemoryTooSmall) {
		t.Errorf("nothing left for Go is accepted: %v", err)
	}
	// The least limit that the message advises works, and nothing below it does.
	o := OffHeap{MemTableBytes: 16 << 20, CacheBytes: 64 << 20}
	if _, err := GoMemoryLimit(o.leastLimit(), o); err != nil {
		t.Errorf("the limit that the error advises is refused: %v", err)
	}
	if _, err := GoMemoryLimit(o.leastLimit()-4, o); err == nil {
		t.Error("less than the advised limit is accepted")
	}
}
