// SPDX-License-Identifier: Apache-2.0

package config

import "errors"

var (
	// ErrUnknown: no config of that name exists in the scope.
	ErrUnknown = errors.New("unknown config")
	// ErrInvalid: the value is not one the config allows, or contradicts another config.
	ErrInvalid = errors.New("invalid config value")
	// ErrReadOnly: the config cannot be changed while the broker runs.
	ErrReadOnly = errors.New("config cannot be changed dynamically")
	// ErrBadOperation: the alteration itself makes no sense, whatever the value (null to SET, a key named twice).
	ErrBadOperation = errors.New("invalid config operation")
)
