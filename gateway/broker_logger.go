// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata/config"
)

// There is one logger, and it is called what Kafka calls the root of its loggers. Its level is this process's own: as in Kafka it is
// not stored, and a restart brings back what --log-level says.
const (
	rootLogger                 = "root"
	sourceLogger config.Source = 6
)

// logLevels are Kafka's names; Kafka has two that are told apart from their neighbours there only.
var logLevels = map[string]slog.Level{
	"TRACE": slog.LevelDebug, "DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARN": slog.LevelWarn, "ERROR": slog.LevelError, "FATAL": slog.LevelError,
}

// describeLogger lists this node's loggers.
func (s *Server) describeLogger() []config.Entry {
	if s.cfg.LogLevel == nil {
		return nil
	}
	level := s.cfg.LogLevel.Level().String()
	return []config.Entry{{Name: rootLogger, Value: &level, Source: sourceLogger}}
}

// alterLogger sets the level of this node's logger.
func (s *Server) alterLogger(name string, configs []kmsg.IncrementalAlterConfigsRequestResourceConfig, validateOnly bool) error {
	if err := s.mustBeThisNode(name); err != nil {
		return err
	}
	var next *slog.Level
	for _, c := range configs {
		switch {
		case c.Op == kmsg.IncrementalAlterConfigOpDelete && c.Name == rootLogger:
			return refuse(codeInvalidRequest, "the level of %s cannot be deleted", rootLogger)
		case c.Op != kmsg.IncrementalAlterConfigOpSet && c.Op != kmsg.IncrementalAlterConfigOpDelete:
			return refuse(codeInvalidRequest, "a logger's level can only be set")
		case c.Op == kmsg.IncrementalAlterConfigOpSet && c.Value == nil:
			return refuse(codeInvalidRequest, "logger %s: null is no level", c.Name)
		case c.Name != rootLogger || s.cfg.LogLevel == nil:
			return refuse(codeInvalidConfig, "there is no logger %q: the only one is %s", c.Name, rootLogger)
		}
		level, ok := logLevels[*c.Value]
		if !ok {
			return refuse(codeInvalidConfig, "level %q is none of TRACE, DEBUG, INFO, WARN, ERROR, FATAL", *c.Value)
		}
		next = &level
	}
	if next != nil && !validateOnly {
		s.cfg.LogLevel.Set(*next)
		s.log.Info("log level set", "level", *next)
	}
	return nil
}
