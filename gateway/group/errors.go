// SPDX-License-Identifier: Apache-2.0

package group

import (
	"errors"

	"github.com/varve/varve/gateway/group/stored"
)

// Why a group refuses a request.
var (
	// ErrUnknownMember: no such member; it joins anew.
	ErrUnknownMember = errors.New("unknown member of the group")
	// ErrIllegalGeneration: not the group's generation.
	ErrIllegalGeneration = errors.New("not the group's generation")
	// ErrInconsistentProtocol: another kind of group, or no protocol that all members know.
	ErrInconsistentProtocol = errors.New("no protocol in common with the group's members")
	// ErrSessionTimeout: the session timeout is out of the broker's bounds.
	ErrSessionTimeout = errors.New("session timeout out of bounds")
	// ErrRebalance: the group rebalances; the member joins again.
	ErrRebalance = errors.New("the group is rebalancing")
	// ErrMemberIDRequired: the member is to join again with the id that it was given.
	ErrMemberIDRequired = errors.New("the member must join again with its id")
	// ErrFull: the group has as many members as it may have.
	ErrFull = errors.New("the group has reached its maximum size")
	// ErrFencedInstance: another process has taken over the static member.
	ErrFencedInstance = errors.New("another member has that group instance id")
	// ErrNotEmpty: the group has members.
	ErrNotEmpty = errors.New("the group is not empty")
	// ErrNotFound: there is no such group.
	ErrNotFound = errors.New("no such group")
	// ErrSubscribed: a member reads the topic.
	ErrSubscribed = errors.New("the group is subscribed to the topic")
	// ErrTooLarge: the group's members and assignments cannot be stored.
	ErrTooLarge = errors.New("the group's state is too large")
	// ErrCorrupt: a stored group cannot be read.
	ErrCorrupt = stored.ErrCorrupt
)
