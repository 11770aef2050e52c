// SPDX-License-Identifier: Apache-2.0

package embed

import "time"

const (
	// lookEvery is how often a member without a directory asks the others, replaceEvery how often a leader looks for such.
	lookEvery    = 500 * time.Millisecond
	replaceEvery = 2 * time.Second
	// askTimeout bounds one question to a peer, changeTimeout one change of the members, which etcd itself bounds as well.
	askTimeout    = time.Second
	changeTimeout = 5 * time.Second
	// maxAnswerBytes is far above the list of as many members as etcd takes.
	maxAnswerBytes = 1 << 20
	// anewPatience: an objection to a new cluster counts when it lasts. Others may have made one between two looks.
	anewPatience = 3 * time.Second
)
