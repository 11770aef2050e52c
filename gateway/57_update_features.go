// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// updateFeatures takes what is in force already and refuses every change: the features' levels say which release's surface is
// served, and are those of the binary. Varve's own versions are raised by varve cluster upgrade.
func (s *Server) updateFeatures(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.UpdateFeaturesRequest)
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	for i := range req.FeatureUpdates {
		u := &req.FeatureUpdates[i]
		if err := checkFeatureUpdate(u, r.Version); err != nil {
			code, message := s.adminCode("updating features", err)
			resp.ErrorCode, resp.ErrorMessage, resp.Results = code.int16(), message, nil
			return resp, nil
		}
		if r.Version <= 1 {
			out := kmsg.NewUpdateFeaturesResponseResult()
			out.Feature = u.Feature
			resp.Results = append(resp.Results, out)
		}
	}
	return resp, nil
}

func checkFeatureUpdate(u *kmsg.UpdateFeaturesRequestFeatureUpdate, version int16) error {
	at := slices.IndexFunc(features, func(f feature) bool { return f.name == u.Feature })
	switch {
	case at < 0:
		return refuse(codeInvalidUpdateVersion, "there is no feature %q", u.Feature)
	case version >= 1 && (u.UpgradeType < 1 || u.UpgradeType > 3):
		return refuse(codeInvalidUpdateVersion, "upgrade type %d of %s is none of 1 (upgrade), 2 (safe downgrade), 3 (unsafe downgrade)", u.UpgradeType, u.Feature)
	case u.MaxVersionLevel != features[at].level:
		return refuse(codeInvalidUpdateVersion, "%s is at %d, which is what this release serves: it cannot be set to %d", u.Feature, features[at].level, u.MaxVersionLevel)
	}
	return nil
}
