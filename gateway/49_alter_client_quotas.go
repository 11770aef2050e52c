// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"math"
	"net/netip"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/quota"
	"github.com/varve/varve/metadata"
)

// alterClientQuotas sets and removes quotas. An entity's operations happen all or not at all; one entity's failure does not touch
// the others.
func (s *Server) alterClientQuotas(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.AlterClientQuotasRequest)
	resp := req.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	ctx, cancel := adminDeadline(ctx, int32(s.broker.Config().RequestTimeout.Milliseconds()))
	defer cancel()
	seen := map[metadata.QuotaEntity]int{} // places in changes, or -1
	var changes []metadata.QuotaChange
	var places []int // in the answer, of each change
	for i := range req.Entries {
		q := &req.Entries[i]
		out := kmsg.NewAlterClientQuotasResponseEntry()
		change, err := quotaChangeOf(q)
		out.Entity = quotaEntityAnswer(q.Entity)
		if err == nil {
			if at, ok := seen[change.Entity]; ok {
				// One answer says so, and nothing of the entity is changed.
				resp.Entries[at].ErrorCode = codeInvalidRequest.int16()
				resp.Entries[at].ErrorMessage = kmsg.StringPtr("the entity is in the request twice")
				continue
			}
			seen[change.Entity] = len(resp.Entries)
			changes, places = append(changes, change), append(places, len(resp.Entries))
		}
		code, message := s.adminCode("altering client quotas", err)
		out.ErrorCode, out.ErrorMessage = code.int16(), message
		resp.Entries = append(resp.Entries, out)
	}
	if !req.ValidateOnly {
		s.putQuotas(ctx, resp, changes, places)
	}
	return resp, nil
}

// putQuotas makes the changes whose answer is not an error yet.
func (s *Server) putQuotas(ctx context.Context, resp *kmsg.AlterClientQuotasResponse, changes []metadata.QuotaChange, places []int) {
	all := s.meta.Image().Quotas()
	good := s.goodQuotas(resp, changes, places, all, maxQuotaEntities-all.Len())
	if len(good) == 0 {
		return
	}
	rev, err := s.meta.AlterQuotas(ctx, good)
	if err == nil {
		s.settle(ctx, rev)
		return
	}
	code, message := s.adminCode("altering client quotas", err)
	for _, at := range places {
		if out := &resp.Entries[at]; out.ErrorCode == codeNone.int16() {
			out.ErrorCode, out.ErrorMessage = code.int16(), message
		}
	}
}

// goodQuotas are the changes that can be made when so many more entities may get quotas. The others are refused; to change or remove
// what there is needs no room.
func (s *Server) goodQuotas(resp *kmsg.AlterClientQuotasResponse, changes []metadata.QuotaChange, places []int, all *metadata.Quotas, room int) (good []metadata.QuotaChange) {
	for i, at := range places {
		c, out := &changes[i], &resp.Entries[at]
		if out.ErrorCode != codeNone.int16() || len(c.Set)+len(c.Remove) == 0 {
			continue
		}
		if len(c.Set) > 0 && all.Of(c.Entity) == nil {
			if room <= 0 {
				code, message := s.adminCode("altering client quotas", refuse(codePolicyViolation, "more than %d entities would have quotas: remove some first", maxQuotaEntities))
				out.ErrorCode, out.ErrorMessage = code.int16(), message
				continue
			}
			room--
		}
		good = append(good, *c)
	}
	return good
}

// quotaEntityAnswer repeats an entity: of a type that is named twice the last name, which is the one that counts.
func quotaEntityAnswer(parts []kmsg.AlterClientQuotasRequestEntryEntity) (out []kmsg.AlterClientQuotasResponseEntryEntity) {
	places := make(map[string]int, len(parts)) // in out: a client can send very many types, though none but three is any use
	for _, p := range parts {
		e := kmsg.NewAlterClientQuotasResponseEntryEntity()
		e.Type, e.Name = p.Type, p.Name
		if at, twice := places[p.Type]; twice {
			out[at] = e
			continue
		}
		places[p.Type] = len(out)
		out = append(out, e)
	}
	return out
}

// quotaChangeOf checks one entry.
func quotaChangeOf(q *kmsg.AlterClientQuotasRequestEntry) (c metadata.QuotaChange, err error) {
	if c.Entity, err = quotaEntityOf(q.Entity); err != nil {
		return c, err
	}
	c.Set = map[string]float64{}
	named := make(map[string]bool, len(q.Ops))
	for _, op := range q.Ops {
		if named[op.Key] {
			return c, refuse(codeInvalidRequest, "quota %s is in the entry twice", op.Key)
		}
		named[op.Key] = true
		if op.Remove {
			c.Remove = append(c.Remove, op.Key) // as in Kafka, there is nothing to complain about if it is not there
			continue
		}
		if err := checkQuota(c.Entity, op.Key, op.Value); err != nil {
			return c, err
		}
		c.Set[op.Key] = op.Value
	}
	return c, nil
}

func quotaEntityOf(parts []kmsg.AlterClientQuotasRequestEntryEntity) (e metadata.QuotaEntity, err error) {
	if len(parts) == 0 {
		return e, refuse(codeInvalidRequest, "an entry names no entity")
	}
	for _, p := range parts {
		at := quotaTypeOf(p.Type)
		if at < 0 {
			return e, refuse(codeInvalidRequest, "entity type %q is none of user, client-id, ip", p.Type)
		}
		part := metadata.QuotaPart{Is: metadata.QuotaDefault}
		if p.Name != nil {
			if *p.Name == "" {
				return e, refuse(codeInvalidRequest, "the name of a %s is empty: null stands for the default", p.Type)
			}
			if n := len(*p.Name); n > maxQuotaName {
				return e, refuse(codeInvalidRequest, "the name of a %s has %d bytes: at most %d are possible", p.Type, n, maxQuotaName)
			}
			part = metadata.QuotaPart{Is: metadata.QuotaNamed, Name: *p.Name}
		}
		*quotaTypes[at].Of(&e) = part
	}
	if e.IP.Is == metadata.QuotaAbsent {
		return e, nil
	}
	if e.User.Is != metadata.QuotaAbsent || e.ClientID.Is != metadata.QuotaAbsent {
		return e, refuse(codeInvalidRequest, "ip goes with no other entity type")
	}
	if e.IP.Is == metadata.QuotaNamed {
		ip, ok := quotaIP(e.IP.Name)
		if !ok {
			return e, refuse(codeInvalidRequest, "%q is no IP address: names are not looked up", e.IP.Name)
		}
		e.IP.Name = ip
	}
	return e, nil
}

// quotaIP is an address as quotas are kept and looked up by.
func quotaIP(name string) (ip string, ok bool) {
	addr, err := netip.ParseAddr(name)
	if err != nil {
		return "", false
	}
	return addr.Unmap().String(), true
}

// wholeWithin is how far a value may be off a whole number where one is wanted; Kafka's number.
const wholeWithin = 1e-6

// checkQuota refuses keys that the entity cannot have, and values that the key cannot have.
func checkQuota(e metadata.QuotaEntity, key string, v float64) error {
	ofIP := e.IP.Is != metadata.QuotaAbsent
	most, whole := math.MaxFloat64, false
	switch {
	case ofIP && key == quota.Connection.Key():
		most, whole = math.MaxInt32, true
	case !ofIP && (key == quota.Produce.Key() || key == quota.Fetch.Key()):
		most, whole = math.MaxInt64, true
	case !ofIP && (key == quota.Request.Key() || key == quota.Mutation.Key()):
	case ofIP:
		return refuse(codeInvalidRequest, "%q is no quota of an ip: only %s is", key, quota.Connection.Key())
	default:
		return refuse(codeInvalidRequest, "%q is no quota of a user or client-id: %s, %s, %s and %s are", key,
			quota.Produce.Key(), quota.Fetch.Key(), quota.Request.Key(), quota.Mutation.Key())
	}
	if math.IsNaN(v) || v <= 0 || v > most {
		return refuse(codeInvalidRequest, "%s=%v must be above 0 and at most %v", key, v, most)
	}
	if whole && math.Abs(v-math.Round(v)) > wholeWithin {
		return refuse(codeInvalidRequest, "%s=%v must be a whole number", key, v)
	}
	return nil
}
