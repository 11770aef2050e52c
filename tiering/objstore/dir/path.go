// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"path/filepath"
	"strings"
)

// Names of files and directories. In an escaped element only a-z, 0-9 and -._=~^% occur, so that "+" and "@" are free:
//
//	elements of a key        a/b/c        -> a/b/c@
//	upper-case letters       Topic        -> ^topic
//	every other byte         é            -> %c3%a9
//	leading or trailing dot  .x           -> %2ex     (hidden files are ours; Windows drops a trailing dot)
//	Windows' device names    con.x        -> %63on.x
//	long elements            200 a, b     -> aaa…+/b@ (a directory ending in + is continued by what it contains)
const (
	objectSuffix = "@"
	joinSuffix   = "+"
	// chunkLength bounds a name; file systems take 255 bytes, suffix included.
	chunkLength = 200
	hexDigits   = "0123456789abcdef"
)

// TempDir is where uploads are written, below the root. Without it the directory is taken for one that is not mounted.
const TempDir = ".varve-tmp"

// escapeKey returns the slash-separated relative path of a key that passes objstore.CheckKey.
func escapeKey(key string) string {
	elements := strings.Split(key, "/")
	for i, e := range elements {
		elements[i] = escapeElement(e)
	}
	return strings.Join(elements, "/") + objectSuffix
}

// escapeElement escapes one element and splits it where it is too long, never within an escape.
func escapeElement(e string) string {
	var b strings.Builder
	device := isDevice(e)
	length := 0
	for i := range len(e) {
		token := escapeByte(e[i], (device && i == 0) || (e[i] == '.' && (i == 0 || i == len(e)-1)))
		if length+len(token) > chunkLength {
			b.WriteString(joinSuffix + "/")
			length = 0
		}
		b.WriteString(token)
		length += len(token)
	}
	return b.String()
}

func escapeByte(c byte, force bool) string {
	switch {
	case force:
	case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '.', c == '_', c == '=':
		return string(rune(c))
	case c >= 'A' && c <= 'Z':
		return "^" + string(rune(c+'a'-'A'))
	}
	return "%" + string(hexDigits[c>>4]) + string(hexDigits[c&15])
}

var devices = map[string]bool{"con": true, "prn": true, "aux": true, "nul": true}

// isDevice: Windows opens a device for these names, whatever follows the first dot.
func isDevice(e string) bool {
	base, _, _ := strings.Cut(strings.ToLower(e), ".")
	if devices[base] {
		return true
	}
	port := strings.HasPrefix(base, "com") || strings.HasPrefix(base, "lpt")
	return port && len(base) == 4 && base[3] >= '0' && base[3] <= '9'
}

// unescapeName turns one name back into bytes of a key; ok is false for names that are not ours.
func unescapeName(name string) (part string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		switch c := name[i]; c {
		case '^':
			if i++; i >= len(name) || name[i] < 'a' || name[i] > 'z' {
				return "", false
			}
			b.WriteByte(name[i] - 'a' + 'A')
		case '%':
			if i+2 >= len(name) {
				return "", false
			}
			hi, lo := strings.IndexByte(hexDigits, name[i+1]), strings.IndexByte(hexDigits, name[i+2])
			if hi < 0 || lo < 0 {
				return "", false
			}
			b.WriteByte(byte(hi<<4 | lo))
			i += 2
		default:
			if escapeByte(c, false) != string(rune(c)) {
				return "", false
			}
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

// file returns where the object of a key is.
func (s *Store) file(key string) string {
	return filepath.Join(s.root, filepath.FromSlash(escapeKey(key)))
}
