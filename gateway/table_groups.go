// SPDX-License-Identifier: Apache-2.0

package gateway

import "github.com/twmb/franz-go/pkg/kmsg"

// groupAPIs are the rows of consumer groups and their offsets. Versions are Kafka 4.4's.
func groupAPIs() []api {
	return []api{
		{key: 8, name: "OffsetCommit", min: 2, max: 10, body: func() kmsg.Request { return new(kmsg.OffsetCommitRequest) }, begin: (*Server).beginOffsetCommit},
		{key: 9, name: "OffsetFetch", min: 1, max: 10, body: func() kmsg.Request { return new(kmsg.OffsetFetchRequest) }, serve: (*Server).offsetFetch},
		{key: 10, name: "FindCoordinator", min: 0, max: 6, body: func() kmsg.Request { return new(kmsg.FindCoordinatorRequest) }, serve: (*Server).findCoordinator},
		{key: 11, name: "JoinGroup", min: 0, max: 9, body: func() kmsg.Request { return new(kmsg.JoinGroupRequest) }, serve: (*Server).joinGroup},
		{key: 12, name: "Heartbeat", min: 0, max: 4, body: func() kmsg.Request { return new(kmsg.HeartbeatRequest) }, serve: (*Server).heartbeat},
		{key: 13, name: "LeaveGroup", min: 0, max: 5, body: func() kmsg.Request { return new(kmsg.LeaveGroupRequest) }, serve: (*Server).leaveGroup},
		{key: 14, name: "SyncGroup", min: 0, max: 5, body: func() kmsg.Request { return new(kmsg.SyncGroupRequest) }, serve: (*Server).syncGroup},
		{key: 15, name: "DescribeGroups", min: 0, max: 6, body: func() kmsg.Request { return new(kmsg.DescribeGroupsRequest) }, serve: (*Server).describeGroups},
		{key: 16, name: "ListGroups", min: 0, max: 5, body: func() kmsg.Request { return new(kmsg.ListGroupsRequest) }, serve: (*Server).listGroups},
		{key: 42, name: "DeleteGroups", min: 0, max: 3, body: func() kmsg.Request { return new(kmsg.DeleteGroupsRequest) }, serve: (*Server).deleteGroups},
		{key: 47, name: "OffsetDelete", min: 0, max: 0, body: func() kmsg.Request { return new(kmsg.OffsetDeleteRequest) }, serve: (*Server).offsetDelete},
		{key: 68, name: "ConsumerGroupHeartbeat", min: 0, max: 1, body: func() kmsg.Request { return new(kmsg.ConsumerGroupHeartbeatRequest) }, serve: (*Server).consumerGroupHeartbeat},
		{key: 69, name: "ConsumerGroupDescribe", min: 0, max: 1, body: func() kmsg.Request { return new(kmsg.ConsumerGroupDescribeRequest) }, serve: (*Server).consumerGroupDescribe},
	}
}
