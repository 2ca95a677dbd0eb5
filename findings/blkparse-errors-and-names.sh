#!/bin/bash
# blkparse prints the error of a completion without its sign, and a process that it does not know in two ways.
#
# blktrace 1.2.0-5 (Debian 12). The input is a trace of two writes by a task of which no record gives the name; the second
# one fails with EIO, which the kernel stores as -5 in 16 bits.
# Seen: the failed completion ends in "[65531]", so that a reader that looks for "-5" or for errno 5 finds neither. The
# task is "(null)" in all lines; with the option -t, which adds times, it is "(null)" in the first and "unknown" in later ones.
# With -t the completions have a duration: 10419605059269445737 ns, where 500000 ns have passed since the issue.
# Exit code 1: this has changed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -o APT::Sandbox::User=root download -qq blktrace=1.2.0-5
dpkg -x blktrace_*.deb .
python3 - <<'PYTHON'
import struct

WRITE, QUEUE, ISSUE, COMPLETE = 1 << 1, 1 << 4, 1 << 6, 1 << 7
DEVICE = 8 << 20  # 8,0


def record(number, time, action, category, pid, error=0):
    """struct blk_io_trace of linux/blktrace_api.h, version 7: 4 KiB at sector 8."""
    return struct.pack("<IIQQIIIIIHH", 0x65617407, number, time, 8, 4096, action | category << 16, pid, DEVICE, 0, error, 0)


with open("t.blktrace.0", "wb") as out:
    for write, error in ((0, 0), (1, -5 & 0xFFFF)):
        time = 1_000_000_000 + write * 1_000_000
        out.write(record(write * 4 + 1, time, 1, WRITE | QUEUE, 77))
        out.write(record(write * 4 + 2, time + 1_000, 4, WRITE | QUEUE, 77))
        out.write(record(write * 4 + 3, time + 3_000, 7, WRITE | ISSUE, 77))
        out.write(record(write * 4 + 4, time + 503_000, 8, WRITE | COMPLETE, 0, error))
PYTHON
usr/bin/blkparse -q -i t >text 2>/dev/null
grep ' [QGDC]  ' text
[ "$(grep -c 'C   W 8 + 8 \[65531\]$' text)" = 1 ]
[ "$(grep -c 'C   W 8 + 8 \[-5\]$' text)" = 0 ]
[ "$(grep -c 'W 8 + 8 \[(null)\]$' text)" = 6 ]
usr/bin/blkparse -q -t -i t >text 2>/dev/null
grep ' [QGDC]  ' text
[ "$(grep -c 'W 8 + 8 \[(null)\]$' text)" = 1 ]
[ "$(grep -c 'W 8 + 8 \[unknown\]$' text)" = 5 ]
[ "$(grep -cE 'C   W 8 \+ 8 \( *[0-9]{15,}\) \[' text)" = 2 ]
