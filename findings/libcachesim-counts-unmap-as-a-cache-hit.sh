#!/bin/bash
# libCacheSim treats the UNMAP requests of a vSCSI trace as accesses: it counts hits, and keeps or inserts the freed block.
#
# libcachesim 0.3.5. The input is a vSCSI trace of 5 requests of 4 KiB: a write, an UNMAP and a read of block 8, then an UNMAP
# and a read of block 16. It is simulated with five algorithms.
# Seen: the reader returns the UNMAP requests with the operation OP_INVALID. The UNMAP of block 8 is a hit, and so is the read
# after it: the block was not removed. The UNMAP of block 16 is a miss that inserts a block. The miss ratio is 0.4.
# Requests with OP_DELETE that a program makes give the same result. With remove() instead of them, all three accesses miss.
# So the miss ratio of a trace with discards is too low, and freed blocks take space from others.
# Exit code 1: this has changed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target packages libcachesim==0.3.5
PYTHONPATH=packages python3 - <<'PYTHON'
import struct

import libcachesim
from libcachesim import ReqOp

COMMANDS = {ReqOp.OP_READ: 0x28, ReqOp.OP_WRITE: 0x2A, ReqOp.OP_DELETE: 0x42}
TRACE = (
    (ReqOp.OP_WRITE, 8),
    (ReqOp.OP_DELETE, 8),
    (ReqOp.OP_READ, 8),
    (ReqOp.OP_DELETE, 16),
    (ReqOp.OP_READ, 16),
)
with open("trace", "wb") as out:
    for number, (operation, block) in enumerate(TRACE):
        # A record of version 1: number, bytes, segments, SCSI command, version, block, microseconds.
        out.write(struct.pack("<IIIHHQQ", number, 4096, 1, COMMANDS[operation], 1 << 8, block, number * 1000))


def reader():
    return libcachesim.TraceReader("trace", trace_type=libcachesim.TraceType.VSCSI_TRACE)


def access(cache, operation, block):
    request = libcachesim.Request()
    request.obj_id, request.obj_size, request.op = block, 4096, operation
    return cache.get(request)


def simulate(algorithm):
    """The miss ratio and the blocks cached after the trace; the hits of the same requests by hand; the hits with remove()."""
    traced, by_hand, removing = (algorithm(cache_size=1 << 20) for _ in range(3))
    ratio, _ = traced.process_trace(reader())
    hits = [access(by_hand, operation, block) for operation, block in TRACE]
    expected = []
    for operation, block in TRACE:
        if operation == ReqOp.OP_DELETE:
            removing.remove(block)
        else:
            expected.append(access(removing, operation, block))
    return round(ratio, 6), traced.get_n_obj(), hits, expected


operations = [request.op.name for request in reader()]
print(operations)
assert operations == ["OP_WRITE", "OP_INVALID", "OP_READ", "OP_INVALID", "OP_READ"]
for name in ("LRU", "FIFO", "ARC", "S3FIFO", "Sieve"):
    found = simulate(getattr(libcachesim, name))
    print(name, found)
    assert found == (0.4, 2, [False, True, True, False, True], [False, False, False])
PYTHON
