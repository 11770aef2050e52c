// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/varve/varve/broker/hotlog"
)

func TestDirectoriesCannotBeAdded(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	var logs []*hotlog.DB
	for _, dir := range dirs {
		db, err := hotlog.Open(dir, hotlog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		logs = append(logs, db)
	}
	if err := sameAge(dirs, logs); err != nil {
		t.Fatalf("two fresh directories: %v", err)
	}
	if err := logs[0].SetIdentity("cluster", 1); err != nil {
		t.Fatal(err)
	}
	if err := sameAge(dirs, logs); err == nil || !strings.Contains(err.Error(), dirs[1]+" is new") {
		t.Fatalf("a fresh directory beside a used one: %v", err)
	}
	if err := sameAge(dirs[:1], logs[:1]); err != nil {
		t.Fatalf("one used directory: %v", err)
	}
}
