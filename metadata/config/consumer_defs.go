// SPDX-License-Identifier: Apache-2.0

package config

func brokerConsumerDefs() []*Def {
	return []*Def{
		broker("group.coordinator.rebalance.protocols", List, "classic,consumer,streams").oneOf("classic", "consumer", "streams", "share").fixed().
			doc("Protocols of groups. Without consumer, members of that protocol are refused; classic is always served, streams and share never."),
		broker("group.consumer.session.timeout.ms", Int, "45000").min(1).fixed().doc("Silence after which a member of a consumer group is put out."),
		broker("group.consumer.min.session.timeout.ms", Int, "45000").min(1).fixed().doc("Shortest session timeout that a consumer group may choose."),
		broker("group.consumer.max.session.timeout.ms", Int, "60000").min(1).fixed().doc("Longest session timeout that a consumer group may choose."),
		broker("group.consumer.heartbeat.interval.ms", Int, "5000").min(1).fixed().doc("How often members of consumer groups send heartbeats."),
		broker("group.consumer.min.heartbeat.interval.ms", Int, "5000").min(1).fixed().doc("Shortest heartbeat interval that a consumer group may choose."),
		broker("group.consumer.max.heartbeat.interval.ms", Int, "15000").min(1).fixed().doc("Longest heartbeat interval that a consumer group may choose."),
		broker("group.consumer.assignment.interval.ms", Int, "1000").min(0).dynamic().doc("Shortest time between two assignments of a consumer group."),
		broker("group.consumer.min.assignment.interval.ms", Int, "0").min(0).fixed().doc("Shortest assignment interval that a consumer group may choose."),
		broker("group.consumer.max.assignment.interval.ms", Int, "15000").min(0).fixed().doc("Longest assignment interval that a consumer group may choose."),
		broker("group.consumer.max.size", Int, maxInt).min(1).fixed().doc("Most members of a consumer group."),
		broker("group.consumer.assignors", List, "uniform,range").oneOf("uniform", "range").fixed().doc("Assignors that members of consumer groups may choose; the first one is for those who choose none."),
		broker("group.consumer.migration.policy", String, "bidirectional").oneOf("bidirectional", "upgrade", "downgrade", "disabled").fixed().
			doc("Which groups change their protocol with their members: upgrade (a classic group, when a consumer of the new protocol joins), downgrade (a consumer group, when only classic members are left), bidirectional or disabled."),
		broker("group.consumer.regex.refresh.interval.ms", Int, "600000").min(10_000).internal().fixed().doc("How often subscriptions by regular expression are resolved anew though no topic has changed."),
	}
}
