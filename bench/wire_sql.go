package main

import "encoding/binary"

// mysqlParser finds the commands of a connection to MySQL or MariaDB. Each begins with a packet of
// number 0; packets of the login have other numbers. Preparing and closing a statement, and a ping,
// are commands like any other.
type mysqlParser struct {
	head [4]byte // length and number of a packet
	have int     // bytes of it
	skip int     // remaining bytes of the packet
}

func (p *mysqlParser) feed(b []byte) (n int) {
	for len(b) > 0 {
		if p.skip > 0 {
			b = drop(b, &p.skip)
			continue
		}
		k := copy(p.head[p.have:], b)
		b, p.have = b[k:], p.have+k
		if p.have < len(p.head) {
			break
		}
		p.have, p.skip = 0, int(p.head[0])|int(p.head[1])<<8|int(p.head[2])<<16
		if p.head[3] == 0 {
			n++
		}
	}
	return n
}

// postgresParser finds the commands of a connection to PostgreSQL: messages that the server answers
// with "ready for query". These are a simple query, and the end of an exchange that parses,
// describes, binds or executes.
type postgresParser struct {
	head    [5]byte // kind and length of a message; the first has no kind
	have    int     // bytes of it
	skip    int     // remaining bytes of the message
	greeted bool    // the first message has begun
}

func (p *postgresParser) feed(b []byte) (n int) {
	for len(b) > 0 {
		if p.skip > 0 {
			b = drop(b, &p.skip)
			continue
		}
		if !p.greeted {
			p.greeted, p.have = true, 1
		}
		k := copy(p.head[p.have:], b)
		b, p.have = b[k:], p.have+k
		if p.have < len(p.head) {
			break
		}
		p.have, p.skip = 0, int(binary.BigEndian.Uint32(p.head[1:]))-4
		if p.head[0] == 'Q' || p.head[0] == 'S' {
			n++
		}
	}
	return n
}

// drop takes up to *skip bytes off b.
func drop(b []byte, skip *int) []byte {
	k := min(*skip, len(b))
	*skip -= k
	return b[k:]
}
