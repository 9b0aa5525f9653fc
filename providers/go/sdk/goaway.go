package sdk

import (
	"net"
	"sync"
)

// conversations are the connections on which the server has not sent GOAWAY yet. Streams of hints must end after the GOAWAY (CORE-17), and gRPC does
// not report when it has sent it.
type conversations struct {
	net.Listener
	mutex sync.Mutex
	open  map[*conversation]struct{}
	// Made by allTold while such a connection is open. leave closes it, and forgets it, when none is left.
	told chan struct{}
}

func (c *conversations) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	connection := &conversation{Conn: accepted, all: c}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.open == nil {
		c.open = map[*conversation]struct{}{}
	}
	c.open[connection] = struct{}{}
	return connection, nil
}

// allTold returns a channel that is closed once the server has sent GOAWAY on each connection that is still open.
func (c *conversations) allTold() <-chan struct{} {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	told := make(chan struct{})
	if len(c.open) == 0 {
		close(told)
	} else {
		c.told = told
	}
	return told
}

func (c *conversations) leave(connection *conversation) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, there := c.open[connection]; !there {
		return
	}
	delete(c.open, connection)
	if c.told != nil && len(c.open) == 0 {
		close(c.told)
		c.told = nil
	}
}

// conversation is a connection that reads the headers of the frames that are sent on it.
type conversation struct {
	net.Conn
	all *conversations
	// The bytes of the current header so far, and the remaining length of its frame's payload.
	header []byte
	left   int
}

const (
	frameHeader = 9
	frameGoAway = 0x7
)

// Write sends, and records a GOAWAY after it has been sent. gRPC has one writer for each connection.
func (c *conversation) Write(bytes []byte) (int, error) {
	sent, err := c.Conn.Write(bytes)
	for rest := bytes[:sent]; len(rest) > 0; {
		if c.left > 0 {
			skipped := min(c.left, len(rest))
			c.left, rest = c.left-skipped, rest[skipped:]
			continue
		}
		taken := min(frameHeader-len(c.header), len(rest))
		c.header, rest = append(c.header, rest[:taken]...), rest[taken:]
		if len(c.header) == frameHeader {
			if c.header[3] == frameGoAway {
				c.all.leave(c)
			}
			c.left, c.header = int(c.header[0])<<16|int(c.header[1])<<8|int(c.header[2]), c.header[:0]
		}
	}
	return sent, err
}

// Close closes the connection, which then needs no GOAWAY.
func (c *conversation) Close() error {
	c.all.leave(c)
	return c.Conn.Close()
}
