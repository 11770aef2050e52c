// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// listenerOptions are Kafka's four listener settings as given.
type listenerOptions struct{ listen, advertise, protocols, interBroker string }

// endpoint is one listener: where it is bound and what clients are told.
type endpoint struct {
	name           string
	bind           string // host:port to listen on
	host           string // advertised
	port           int32  // advertised; 0: the port that was bound
	advertised     bool
	interBrokerUse bool
}

type address struct {
	name, host string
	port       int32
}

// parseListeners combines the settings, and refuses what clients could not use.
func parseListeners(o listenerOptions) ([]endpoint, error) {
	binds, err := parseAddresses("--listeners", o.listen)
	if err != nil {
		return nil, err
	}
	if len(binds) == 0 {
		return nil, usagef("--listeners is empty: name at least one, such as PLAINTEXT://:9092")
	}
	ads, err := parseAddresses("--advertised-listeners", o.advertise)
	if err != nil {
		return nil, err
	}
	if err := checkProtocols(o.protocols, binds); err != nil {
		return nil, err
	}
	var endpoints []endpoint
	for _, b := range binds {
		e := endpoint{name: b.name, bind: net.JoinHostPort(b.host, strconv.Itoa(int(b.port))), host: b.host, port: b.port, interBrokerUse: b.name == o.interBroker}
		for _, a := range ads {
			if a.name == b.name {
				e.host, e.port, e.advertised = a.host, a.port, true
			}
		}
		// A client listener that is not named in --advertised-listeners advertises its own address, as in Kafka.
		if isWildcard(e.host) && !e.interBrokerUse {
			return nil, usagef("listener %s would advertise the wildcard address %q, which clients cannot connect to: "+
				"set --advertised-listeners %s://HOST:%d", b.name, e.host, b.name, b.port)
		}
		endpoints = append(endpoints, e)
	}
	for _, a := range ads {
		if !hasListener(binds, a.name) {
			return nil, usagef("--advertised-listeners names %s, which --listeners does not have", a.name)
		}
	}
	return endpoints, nil
}

func hasListener(all []address, name string) bool {
	for _, a := range all {
		if a.name == name {
			return true
		}
	}
	return false
}

func isWildcard(host string) bool {
	if host == "" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

func parseAddresses(flag, list string) ([]address, error) {
	var out []address
	for _, item := range strings.Split(list, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		name, rest, ok := strings.Cut(item, "://")
		if !ok || name == "" {
			return nil, usagef("%s: %q is not NAME://HOST:PORT", flag, item)
		}
		host, portText, err := net.SplitHostPort(rest)
		if err != nil {
			return nil, usagef("%s: %q is not NAME://HOST:PORT", flag, item)
		}
		port, err := strconv.ParseUint(portText, 10, 16)
		if err != nil {
			return nil, usagef("%s: port %q of %s is not a number from 0 to 65535", flag, portText, name)
		}
		name = strings.ToUpper(name)
		if hasListener(out, name) {
			return nil, usagef("%s names %s twice", flag, name)
		}
		out = append(out, address{name: name, host: host, port: int32(port)})
	}
	return out, nil
}

// checkProtocols refuses listeners that would need what this version does not speak.
func checkProtocols(mapping string, binds []address) error {
	protocols := map[string]string{"INTERNAL": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT"}
	for _, item := range strings.Split(mapping, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		name, protocol, ok := strings.Cut(item, ":")
		if !ok {
			return usagef("--listener-security-protocol-map: %q is not NAME:PROTOCOL", item)
		}
		protocols[strings.ToUpper(name)] = strings.ToUpper(protocol)
	}
	for _, b := range binds {
		protocol, ok := protocols[b.name]
		if !ok {
			return usagef("listener %s has no security protocol: add %s:PLAINTEXT to --listener-security-protocol-map", b.name, b.name)
		}
		if protocol != "PLAINTEXT" {
			return usagef("listener %s asks for %s; this version serves PLAINTEXT only", b.name, protocol)
		}
	}
	return nil
}
