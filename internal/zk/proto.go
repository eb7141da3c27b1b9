package zk

// opcode is a request type of ZooDefs.OpCode.
type opcode int32

const (
	opCreate          opcode = 1
	opDelete          opcode = 2
	opExists          opcode = 3
	opGetData         opcode = 4
	opSetData         opcode = 5
	opGetACL          opcode = 6
	opSync            opcode = 9
	opGetChildren2    opcode = 12
	opCheck           opcode = 13
	opMulti           opcode = 14
	opCreate2         opcode = 15
	opRemoveWatches   opcode = 18
	opCreateContainer opcode = 19
	opAuth            opcode = 100
	opSetWatches      opcode = 101
	opAddWatch        opcode = 106
	opCloseSession    opcode = -11
	opFailed          opcode = -1
)

// Exchange numbers that do not belong to a request.
const (
	xidEvent      int32 = -1
	xidAuth       int32 = -4
	xidSetWatches int32 = -8
)

// fromLeader reports whether an answer to op comes from the leader, or needed its agreement.
// Servers answer other requests by themselves.
func (op opcode) fromLeader() bool {
	switch op {
	case opCreate, opCreate2, opCreateContainer, opDelete, opSetData, opMulti, opSync:
		return true
	default:
		return false
	}
}

type connectRequest struct {
	lastZxid  int64
	timeout   int32 // milliseconds
	sessionID int64 // 0 for a new session
	password  []byte
}

func (r *connectRequest) packet() []byte {
	e := newPacket(45)
	e.int32(0) // protocol version
	e.int64(r.lastZxid)
	e.int32(r.timeout)
	e.int64(r.sessionID)
	e.buffer(r.password)
	e.bool(false) // no read-only server
	return e.finish()
}

type connectReply struct {
	timeout   int32 // milliseconds; not positive: the session has expired
	sessionID int64
	password  []byte
}

func decodeConnectReply(b []byte) (connectReply, error) {
	d := decoder{b: b}
	d.int32() // protocol version
	r := connectReply{timeout: d.int32(), sessionID: d.int64(), password: d.buffer()}
	return r, d.err
}

// replyHeader comes before every answer except that to a connect request.
type replyHeader struct {
	xid  int32
	zxid int64 // the last transaction that the server had applied
	code Code
}

func (d *decoder) header() replyHeader {
	return replyHeader{d.int32(), d.int64(), Code(d.int32())}
}

func authPacket(a Auth) []byte {
	e := newPacket(len(a.Scheme) + len(a.Data) + 20)
	e.int32(xidAuth)
	e.int32(int32(opAuth))
	e.int32(0)
	e.string(a.Scheme)
	e.buffer(a.Data)
	return e.finish()
}
