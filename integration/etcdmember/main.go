// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	dir := flag.String("data", "", "data `DIR` of the member, required")
	client := flag.String("client", "http://127.0.0.1:2379", "client `URL`")
	name := flag.String("name", "m1", "`NAME` of the member")
	cluster := flag.String("cluster", "", "NAME=URL of every member, this one among them; empty: one member, whose peer URL nobody dials")
	flag.Parse()
	if *dir == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*dir, *client, *name, *cluster); err != nil {
		fmt.Fprintln(os.Stderr, "etcdmember:", err)
		os.Exit(1)
	}
}

func run(dir, client, name, cluster string) error {
	clientURL, err := url.Parse(client)
	if err != nil {
		return err
	}
	peer := "http://127.0.0.1:0"
	for _, member := range strings.Split(cluster, ",") {
		if its, ok := strings.CutPrefix(member, name+"="); ok {
			peer = its
		}
	}
	peerURL, err := url.Parse(peer)
	if err != nil {
		return err
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel = name, dir, "warn"
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peerURL}, []url.URL{*peerURL}
	c.InitialCluster = cluster
	if cluster == "" {
		c.InitialCluster = c.InitialClusterFromName(c.Name)
	}
	c.LogOutputs = []string{"stderr"}
	c.TickMs, c.ElectionMs = 50, 500
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer e.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	select {
	case <-e.Server.ReadyNotify():
		fmt.Println("ready:", clientURL)
	case <-e.Server.StopNotify():
		return errors.New("the server stopped while starting")
	case err := <-e.Err():
		return err
	case <-stop:
		return nil
	}
	select {
	case err := <-e.Err():
		return err
	case <-stop:
		return nil
	}
}
