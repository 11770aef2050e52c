// SPDX-License-Identifier: Apache-2.0

package gateway

import "github.com/twmb/franz-go/pkg/kmsg"

// adminAPIs are the rows of administration: topics, configs, the cluster's description. Versions are Kafka 4.4's.
func adminAPIs() []api {
	return []api{
		{key: 3, name: "Metadata", min: 0, max: 13, flexibleFrom: 9, body: func() kmsg.Request { return new(kmsg.MetadataRequest) }, serve: (*Server).metadata},
		{key: 19, name: "CreateTopics", min: 2, max: 7, flexibleFrom: 5, body: func() kmsg.Request { return new(kmsg.CreateTopicsRequest) }, serve: (*Server).createTopics},
		{key: 20, name: "DeleteTopics", min: 1, max: 6, flexibleFrom: 4, body: func() kmsg.Request { return new(kmsg.DeleteTopicsRequest) }, serve: (*Server).deleteTopics},
		{key: 21, name: "DeleteRecords", min: 0, max: 2, flexibleFrom: 2, body: func() kmsg.Request { return new(kmsg.DeleteRecordsRequest) }, serve: (*Server).deleteRecords},
		// Old clients that do not negotiate send version 0.
		{key: 32, name: "DescribeConfigs", min: 1, max: 4, silentBelow: 1, flexibleFrom: 4, body: func() kmsg.Request { return new(kmsg.DescribeConfigsRequest) }, serve: (*Server).describeConfigs},
		{key: 33, name: "AlterConfigs", min: 0, max: 2, flexibleFrom: 2, body: func() kmsg.Request { return new(kmsg.AlterConfigsRequest) }, serve: (*Server).alterConfigs},
		{key: 35, name: "DescribeLogDirs", min: 1, max: 5, flexibleFrom: 2, body: func() kmsg.Request { return new(kmsg.DescribeLogDirsRequest) }, serve: (*Server).describeLogDirs},
		{key: 37, name: "CreatePartitions", min: 0, max: 3, flexibleFrom: 2, body: func() kmsg.Request { return new(kmsg.CreatePartitionsRequest) }, serve: (*Server).createPartitions},
		{key: 43, name: "ElectLeaders", min: 0, max: 2, flexibleFrom: 2, body: func() kmsg.Request { return new(kmsg.ElectLeadersRequest) }, serve: (*Server).electLeaders},
		{key: 45, name: "AlterPartitionReassignments", min: 0, max: 1, flexibleFrom: 0, body: func() kmsg.Request { return new(kmsg.AlterPartitionAssignmentsRequest) }, serve: (*Server).alterPartitionReassignments},
		{key: 46, name: "ListPartitionReassignments", min: 0, max: 0, flexibleFrom: 0, body: func() kmsg.Request { return new(kmsg.ListPartitionReassignmentsRequest) }, serve: (*Server).listPartitionReassignments},
		{key: 44, name: "IncrementalAlterConfigs", min: 0, max: 1, flexibleFrom: 1, body: func() kmsg.Request { return new(kmsg.IncrementalAlterConfigsRequest) }, serve: (*Server).incrementalAlterConfigs},
		{key: 48, name: "DescribeClientQuotas", min: 0, max: 1, body: func() kmsg.Request { return new(kmsg.DescribeClientQuotasRequest) }, serve: (*Server).describeClientQuotas},
		{key: 49, name: "AlterClientQuotas", min: 0, max: 1, body: func() kmsg.Request { return new(kmsg.AlterClientQuotasRequest) }, serve: (*Server).alterClientQuotas},
		{key: 60, name: "DescribeCluster", min: 0, max: 2, flexibleFrom: 0, body: func() kmsg.Request { return new(kmsg.DescribeClusterRequest) }, serve: (*Server).describeCluster},
		{key: 29, name: "DescribeAcls", min: 1, max: 3, body: func() kmsg.Request { return new(kmsg.DescribeACLsRequest) }, serve: (*Server).describeACLs},
		{key: 30, name: "CreateAcls", min: 1, max: 3, body: func() kmsg.Request { return new(kmsg.CreateACLsRequest) }, serve: (*Server).createACLs},
		{key: 31, name: "DeleteAcls", min: 1, max: 3, body: func() kmsg.Request { return new(kmsg.DeleteACLsRequest) }, serve: (*Server).deleteACLs},
		{key: 34, name: "AlterReplicaLogDirs", min: 1, max: 2, body: func() kmsg.Request { return new(kmsg.AlterReplicaLogDirsRequest) }, serve: (*Server).alterReplicaLogDirs},
		{key: 38, name: "CreateDelegationToken", min: 1, max: 3, flexibleFrom: 2, body: func() kmsg.Request { return new(kmsg.CreateDelegationTokenRequest) }, serve: (*Server).createDelegationToken},
		{key: 39, name: "RenewDelegationToken", min: 1, max: 2, flexibleFrom: 2, body: func() kmsg.Request { return new(kmsg.RenewDelegationTokenRequest) }, serve: (*Server).renewDelegationToken},
		{key: 40, name: "ExpireDelegationToken", min: 1, max: 2, flexibleFrom: 2, body: func() kmsg.Request { return new(kmsg.ExpireDelegationTokenRequest) }, serve: (*Server).expireDelegationToken},
		{key: 41, name: "DescribeDelegationToken", min: 1, max: 3, flexibleFrom: 2, body: func() kmsg.Request { return new(kmsg.DescribeDelegationTokenRequest) }, serve: (*Server).describeDelegationToken},
		{key: 50, name: "DescribeUserScramCredentials", min: 0, max: 0, body: func() kmsg.Request { return new(kmsg.DescribeUserSCRAMCredentialsRequest) }, serve: (*Server).describeUserScramCredentials},
		{key: 51, name: "AlterUserScramCredentials", min: 0, max: 0, body: func() kmsg.Request { return new(kmsg.AlterUserSCRAMCredentialsRequest) }, serve: (*Server).alterUserScramCredentials},
		{key: 57, name: "UpdateFeatures", min: 0, max: 2, body: func() kmsg.Request { return new(kmsg.UpdateFeaturesRequest) }, serve: (*Server).updateFeatures},
		{key: 61, name: "DescribeProducers", min: 0, max: 0, body: func() kmsg.Request { return new(kmsg.DescribeProducersRequest) }, serve: (*Server).describeProducers},
		{key: 64, name: "UnregisterBroker", min: 0, max: 0, body: func() kmsg.Request { return new(kmsg.UnregisterBrokerRequest) }, serve: (*Server).unregisterBroker},
		{key: 74, name: "ListConfigResources", min: 0, max: 1, body: func() kmsg.Request { return new(kmsg.ListConfigResourcesRequest) }, serve: (*Server).listConfigResources},
		{key: 75, name: "DescribeTopicPartitions", min: 0, max: 0, flexibleFrom: 0, body: func() kmsg.Request { return new(kmsg.DescribeTopicPartitionsRequest) }, serve: (*Server).describeTopicPartitions},
	}
}
