// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var errNotAllowed = errors.New("not allowed")

// onlyTrue is for switches that cannot be switched off; it goes with one of the allowed values, so that messages say which.
func onlyTrue(v string) error {
	if !isTrue(v) {
		return errNotAllowed
	}
	return nil
}

// throttledReplicas accepts * or a list of partition:broker.
func throttledReplicas(v string) error {
	if strings.TrimSpace(v) == "*" {
		return nil
	}
	for _, pair := range splitList(v) {
		p, b, ok := strings.Cut(pair, ":")
		if _, err := strconv.ParseUint(p, 10, 31); err != nil || !ok {
			return errNotAllowed
		}
		if _, err := strconv.ParseUint(b, 10, 31); err != nil {
			return errNotAllowed
		}
	}
	return nil
}

// notZero is for limits where -1 means none and 0 would mean never.
func notZero(v string) error {
	if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err != nil || n == 0 {
		return errNotAllowed
	}
	return nil
}

// shareReset accepts the start positions of a share group.
func shareReset(v string) error {
	if v == "earliest" || v == "latest" {
		return nil
	}
	period, ok := strings.CutPrefix(v, "by_duration:")
	if !ok || len(period) < 3 || period[0] != 'P' {
		return errNotAllowed
	}
	return nil
}

// clientAttributes are what client metrics can choose clients by.
var clientAttributes = []string{"client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address", "client_source_port"}

func clientMatches(v string) error {
	for _, item := range splitList(v) {
		name, pattern, ok := strings.Cut(item, "=")
		if !ok || !slices.Contains(clientAttributes, strings.TrimSpace(name)) {
			return errNotAllowed
		}
		if _, err := regexp.Compile(strings.TrimSpace(pattern)); err != nil {
			return errNotAllowed
		}
	}
	return nil
}
