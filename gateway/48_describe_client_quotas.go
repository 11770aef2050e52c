// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
)

// describeClientQuotas answers the quotas of the entities that the components choose.
func (s *Server) describeClientQuotas(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeClientQuotasRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
	want, err := quotaFilterOf(req)
	if err != nil {
		code, message := s.adminCode("describing client quotas", err)
		resp.ErrorCode, resp.ErrorMessage = code.int16(), message
		return resp, nil
	}
	resp.Entries = []kmsg.DescribeClientQuotasResponseEntry{}
	for e, values := range s.meta.Image().Quotas().All() {
		if !want.matches(&e) {
			continue
		}
		out := kmsg.NewDescribeClientQuotasResponseEntry()
		for _, d := range quotaTypes {
			p := d.Of(&e)
			if p.Is == metadata.QuotaAbsent {
				continue
			}
			part := kmsg.NewDescribeClientQuotasResponseEntryEntity()
			part.Type = d.Name
			if p.Is == metadata.QuotaNamed {
				part.Name = &p.Name
			}
			out.Entity = append(out.Entity, part)
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			v := kmsg.NewDescribeClientQuotasResponseEntryValue()
			v.Key, v.Value = key, values[key]
			out.Values = append(out.Values, v)
		}
		resp.Entries = append(resp.Entries, out)
	}
	return resp, nil
}

// quotaTypes are Kafka's entity types.
var quotaTypes = metadata.QuotaDimensions()

// quotaTypeOf is the place of a type, -1 for one that is not known.
func quotaTypeOf(name string) int {
	return slices.IndexFunc(quotaTypes, func(d metadata.QuotaDimension) bool { return d.Name == name })
}

// quotaFilter chooses entities: each type that is named must be there as wanted; strict: and no other one.
type quotaFilter struct {
	named  [3]bool // by the index of quotaTypes
	any    [3]bool
	part   metadata.QuotaEntity // of types that are not any
	strict bool
}

func quotaFilterOf(req *kmsg.DescribeClientQuotasRequest) (*quotaFilter, error) {
	f := &quotaFilter{strict: req.Strict}
	for i := range req.Components {
		c := &req.Components[i]
		if c.EntityType == "" {
			return nil, refuse(codeInvalidRequest, "an entity type is empty")
		}
		at := quotaTypeOf(c.EntityType)
		switch {
		case at < 0:
			return nil, refuse(codeUnsupportedVersion, "entity type %q is none of user, client-id, ip", c.EntityType)
		case f.named[at]:
			return nil, refuse(codeInvalidRequest, "entity type %s is in the request twice", c.EntityType)
		}
		f.named[at] = true
		part := quotaTypes[at].Of(&f.part)
		switch c.MatchType {
		case kmsg.QuotasMatchTypeExact:
			if c.Match == nil {
				return nil, refuse(codeInvalidRequest, "an exact match of %s needs a name", c.EntityType)
			}
			*part = metadata.QuotaPart{Is: metadata.QuotaNamed, Name: *c.Match}
			if ip, ok := quotaIP(*c.Match); ok && part == &f.part.IP {
				part.Name = ip // what is none matches nothing
			}
			continue
		case kmsg.QuotasMatchTypeDefault:
			*part = metadata.QuotaPart{Is: metadata.QuotaDefault}
		case kmsg.QuotasMatchTypeAny:
			f.any[at] = true
		default:
			return nil, refuse(codeInvalidRequest, "match type %d is none of 0 (exact), 1 (default), 2 (any)", c.MatchType)
		}
		if c.Match != nil {
			return nil, refuse(codeInvalidRequest, "only an exact match of %s has a name", c.EntityType)
		}
	}
	if f.named[2] && (f.named[0] || f.named[1]) {
		return nil, refuse(codeInvalidRequest, "ip goes with no other entity type")
	}
	return f, nil
}

func (f *quotaFilter) matches(e *metadata.QuotaEntity) bool {
	for i, d := range quotaTypes {
		have := d.Of(e)
		switch {
		case !f.named[i]:
			if f.strict && have.Is != metadata.QuotaAbsent {
				return false
			}
		case f.any[i]:
			if have.Is == metadata.QuotaAbsent {
				return false
			}
		case *have != *d.Of(&f.part):
			return false
		}
	}
	return true
}
