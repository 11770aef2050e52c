// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"fmt"
	"time"
)

// Why says in words what is not sealed and not evicted, and until when.
func (h *Handle) Why(now time.Time) (out []string) {
	v := h.View()
	if v == nil {
		return []string{"not sealed: the manifest is not loaded yet"}
	}
	hot := h.p.Hot(v.Head.TieredEnd)
	h.a.mu.Lock()
	pause, running := h.pause, h.running
	h.a.mu.Unlock()
	trouble := h.trouble.Load()
	switch {
	case hot.UnsealedBytes <= 0:
		out = append(out, "everything is in the bucket")
	case h.a.paused.Load():
		out = append(out, "not sealed: sealing is paused on this node")
	case running && trouble != nil:
		out = append(out, fmt.Sprintf("not sealed: %s; it is tried again and again", trouble))
	case running:
		out = append(out, "an upload or another step is under way")
	case now.Before(pause) && trouble != nil:
		out = append(out, fmt.Sprintf("not sealed: %s; the next try is in %s", trouble, pause.Sub(now).Round(time.Millisecond)))
	case now.Before(pause):
		out = append(out, fmt.Sprintf("not sealed: the last try failed, the next one is in %s; the log says why", pause.Sub(now).Round(time.Millisecond)))
	case hot.SealableBytes <= 0:
		out = append(out, fmt.Sprintf("not sealed: none of %d bytes is below the high watermark %d and the last stable offset %d", hot.UnsealedBytes, hot.HW, hot.LSO))
	default:
		age := time.Duration(0)
		if at := h.waiting.Load(); at > 0 {
			age = now.Sub(time.Unix(0, at))
		}
		out = append(out, fmt.Sprintf("not sealed: below size and age: %d of %d bytes, %s of %s", hot.SealableBytes, h.segmentBytes(), age.Round(time.Millisecond), h.sealAge()))
	}
	if kept := hot.LocalBytes - hot.UnsealedBytes; kept > 0 {
		p := h.p.Policy()
		out = append(out, fmt.Sprintf("not evicted: %d bytes are in the bucket as well, kept for local.retention.ms %d and local.retention.bytes %d",
			kept, p.LocalRetentionAge.Milliseconds(), p.LocalRetentionBytes))
	}
	return out
}
