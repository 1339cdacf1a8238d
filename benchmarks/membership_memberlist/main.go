// Crashes, joins and traffic of hashicorp/memberlist with DefaultLANConfig, on real sockets of the loopback.
//
// Every node is a whole memberlist with sockets of its own; all nodes of a run are in one process. A crash is Shutdown
// without Leave: the sockets close and nothing is announced. Loss strikes UDP packets only, since TCP sends again.
// benchmarks/membership.py builds and runs this where Go and the module are installed, for example in Debian:
//
//	apt-get install golang-go golang-github-hashicorp-memberlist-dev
//	GO111MODULE=off GOPATH=/usr/share/gocode go run benchmarks/membership_memberlist/main.go -nodes 25
//
// It prints one JSON object.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/ioutil"
	"log"
	"math/rand"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	deadline = 120 * time.Second // for any one crash or join to be known by all
	port     = 7946
	// On a busy machine the stream of a join may meet memberlist's time-out of 10 s.
	joinTries = 3
)

// traffic counts what all nodes of a cluster send: UDP payloads, and both directions of each TCP stream.
type traffic struct{ messages, bytes int64 }

func (t *traffic) add(messages, bytes int) {
	atomic.AddInt64(&t.messages, int64(messages))
	atomic.AddInt64(&t.bytes, int64(bytes))
}

// transport is memberlist's own, which also loses UDP packets and counts.
type transport struct {
	*memberlist.NetTransport
	loss    float64
	rng     *rand.Rand
	lock    sync.Mutex
	traffic *traffic
}

func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	t.traffic.add(1, len(b))
	t.lock.Lock()
	lost := t.rng.Float64() < t.loss
	t.lock.Unlock()
	if lost {
		return time.Now(), nil
	}
	return t.NetTransport.WriteToAddress(b, a)
}

func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	conn, err := t.NetTransport.DialAddressTimeout(a, timeout)
	if err != nil {
		return nil, err
	}
	t.traffic.add(2, 0) // a request and its answer
	return &counted{conn, t.traffic}, nil
}

type counted struct {
	net.Conn
	traffic *traffic
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.add(0, n)
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.traffic.add(0, n)
	return n, err
}

// change is what one node learns of another.
type change struct {
	at          time.Time
	from, about string
	alive       bool
}

type events struct {
	name    string
	changes chan<- change
}

func (e *events) NotifyJoin(n *memberlist.Node) {
	e.changes <- change{time.Now(), e.name, n.Name, true}
}
func (e *events) NotifyLeave(n *memberlist.Node) {
	e.changes <- change{time.Now(), e.name, n.Name, false}
}
func (e *events) NotifyUpdate(n *memberlist.Node) {}

type cluster struct {
	number      int
	nodes       map[string]*memberlist.Memberlist
	names       []string // of the running ones
	down        map[string]bool
	changes     chan change
	rng         *rand.Rand
	loss        float64
	started     int
	falseDeaths int
	traffic     traffic
}

func (c *cluster) start() string {
	c.started++
	name := fmt.Sprintf("node-%d-%d", c.number, c.started)
	// An address of its own: a port that a dead node had would receive the gossip that is still sent to that node.
	address := fmt.Sprintf("127.%d.%d.%d", 1+c.number, c.started/250, 1+c.started%250)
	quiet := log.New(ioutil.Discard, "", 0)
	inner, err := memberlist.NewNetTransport(
		&memberlist.NetTransportConfig{BindAddrs: []string{address}, BindPort: port, Logger: quiet})
	check(err)
	conf := memberlist.DefaultLANConfig()
	conf.Name, conf.Logger = name, quiet
	conf.Events = &events{name, c.changes}
	conf.BindAddr, conf.AdvertiseAddr = address, address
	conf.BindPort, conf.AdvertisePort = port, port
	conf.Transport = &transport{
		NetTransport: inner, loss: c.loss, rng: rand.New(rand.NewSource(c.rng.Int63())), traffic: &c.traffic}
	node, err := memberlist.Create(conf)
	check(err)
	if len(c.names) > 0 {
		for try := 0; try == 0 || (err != nil && try < joinTries); try++ {
			_, err = node.Join([]string{c.nodes[c.names[c.rng.Intn(len(c.names))]].LocalNode().Address()})
		}
		check(err)
	}
	c.nodes[name] = node
	c.names = append(c.names, name)
	return name
}

// wait returns when every running node but the subject itself has learnt that it is alive, or dead.
func (c *cluster) wait(about string, alive bool, began time.Time) time.Duration {
	missing := map[string]bool{}
	for _, name := range c.names {
		if name != about {
			missing[name] = true
		}
	}
	last, over := began, time.After(deadline)
	for len(missing) > 0 {
		select {
		case seen := <-c.changes:
			c.judge(seen)
			if seen.about == about && seen.alive == alive && missing[seen.from] {
				delete(missing, seen.from)
				last = seen.at
			}
		case <-over:
			check(fmt.Errorf("%d nodes do not know of %s after %s", len(missing), about, deadline))
		}
	}
	return last.Sub(began)
}

func (c *cluster) judge(seen change) {
	if !seen.alive && !c.down[seen.about] && !c.down[seen.from] {
		c.falseDeaths++
	}
}

// pass lets time pass.
func (c *cluster) pass(duration time.Duration) {
	over := time.After(duration)
	for {
		select {
		case seen := <-c.changes:
			c.judge(seen)
		case <-over:
			return
		}
	}
}

func (c *cluster) crash() time.Duration {
	at := c.rng.Intn(len(c.names))
	name := c.names[at]
	c.names = append(c.names[:at], c.names[at+1:]...)
	c.down[name] = true
	began := time.Now()
	check(c.nodes[name].Shutdown())
	return c.wait(name, false, began)
}

type result struct {
	Crashes           []float64 `json:"crashes_s"`
	Joins             []float64 `json:"joins_s"`
	FalseDeaths       int       `json:"false_deaths"`
	MessagesPerSecond float64   `json:"messages_per_s"`
	BytesPerSecond    float64   `json:"bytes_per_s"`
}

func run(number int, seed int64, nodes, crashes int, loss float64, rest time.Duration) result {
	c := &cluster{
		number: number, nodes: map[string]*memberlist.Memberlist{}, down: map[string]bool{}, changes: make(chan change, 1<<16),
		rng: rand.New(rand.NewSource(seed + int64(number))), loss: loss}
	for i := 0; i < nodes; i++ {
		began := time.Now()
		c.wait(c.start(), true, began)
	}
	c.pass(10 * time.Second)
	var found result
	before := traffic{atomic.LoadInt64(&c.traffic.messages), atomic.LoadInt64(&c.traffic.bytes)}
	c.pass(rest)
	seconds := rest.Seconds() * float64(nodes)
	found.MessagesPerSecond = float64(atomic.LoadInt64(&c.traffic.messages)-before.messages) / seconds
	found.BytesPerSecond = float64(atomic.LoadInt64(&c.traffic.bytes)-before.bytes) / seconds
	for i := 0; i < crashes; i++ {
		c.pass(time.Duration((2 + 2*c.rng.Float64()) * float64(time.Second)))
		found.Crashes = append(found.Crashes, c.crash().Seconds())
		began := time.Now()
		found.Joins = append(found.Joins, c.wait(c.start(), true, began).Seconds())
	}
	found.FalseDeaths = c.falseDeaths
	for _, name := range c.names {
		check(c.nodes[name].Shutdown())
	}
	return found
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "membership_memberlist:", err)
		os.Exit(1)
	}
}

func main() {
	nodes := flag.Int("nodes", 25, "nodes of each cluster")
	clusters := flag.Int("clusters", 5, "clusters that run at the same time")
	crashes := flag.Int("crashes", 50, "crashes in all clusters together")
	loss := flag.Float64("loss", 0, "share of UDP packets that are lost")
	rest := flag.Duration("rest", 60*time.Second, "how long traffic is counted before the first crash")
	seed := flag.Int64("seed", 1, "of the choice of nodes and packets; real time is not repeatable")
	flag.Parse()
	results := make([]result, *clusters)
	var all sync.WaitGroup
	for i := range results {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			results[i] = run(i, *seed, *nodes, (*crashes+*clusters-1) / *clusters, *loss, *rest)
		}(i)
	}
	all.Wait()
	var sum result
	for _, one := range results {
		sum.Crashes = append(sum.Crashes, one.Crashes...)
		sum.Joins = append(sum.Joins, one.Joins...)
		sum.FalseDeaths += one.FalseDeaths
		sum.MessagesPerSecond += one.MessagesPerSecond / float64(*clusters)
		sum.BytesPerSecond += one.BytesPerSecond / float64(*clusters)
	}
	check(json.NewEncoder(os.Stdout).Encode(sum))
}
