// SPDX-License-Identifier: Apache-2.0

package reconcile

const (
	// unusedProducerIDs is how many producer ids may have been given out after the backup without a trace: nodes take them in blocks of
	// 1,000 as clients ask.
	unusedProducerIDs = 1_000_000
	// footerGuess is the first read of an object's end; a longer footer is read again.
	footerGuess = 64 << 10
	// surveyParallel is how many objects are read at once.
	surveyParallel = 16
	// maxEpochs is how many epochs a head carries at most, as in metadata.
	maxEpochs = 1000
)
