#!/bin/bash
# blkparse adds discarded bytes to the written bytes, and btrecord turns a discard into a write of the same length.
#
# blktrace 1.2.0-5 (Debian 12). The input is a trace of a write of 4 KiB and of a discard of 1 GiB, both completed. The kernel
# sets the write bit on both, and the discard bit on the second one.
# Seen: blkparse prints "W" and "D" for the requests. Its summary has no line for discards: it counts 2 writes of "1048MiB" (KiB
# divided by 1000). btrecord stores two packets with the direction of a write, of 4 KiB and of 1 GiB.
# So the summary of a drive that is trimmed has too many written bytes. A replay would write 1 GiB where 1 GiB was freed.
# Exit code 1: this has changed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -o APT::Sandbox::User=root download -qq blktrace=1.2.0-5
dpkg -x blktrace_*.deb .
python3 - <<'PYTHON'
import struct

WRITE, QUEUE, ISSUE, COMPLETE, DISCARD = 1 << 1, 1 << 4, 1 << 6, 1 << 7, 1 << 13
DEVICE = 8 << 20  # 8,0


def record(number, time, action, category, pid, sector, length):
    """struct blk_io_trace of linux/blktrace_api.h, version 7."""
    return struct.pack(
        "<IIQQIIIIIHH", 0x65617407, number, time, sector, length, action | category << 16, pid, DEVICE, 0, 0, 0
    )


with open("t.blktrace.0", "wb") as out:
    for request, (category, sector, length) in enumerate(((WRITE, 8, 4096), (WRITE | DISCARD, 2048, 1 << 30))):
        time = 1_000_000_000 + request * 1_000_000
        out.write(record(request * 4 + 1, time, 1, category | QUEUE, 77, sector, length))
        out.write(record(request * 4 + 2, time + 1_000, 4, category | QUEUE, 77, sector, length))
        out.write(record(request * 4 + 3, time + 3_000, 7, category | ISSUE, 77, sector, length))
        out.write(record(request * 4 + 4, time + 503_000, 8, category | COMPLETE, 0, sector, length))
PYTHON
usr/bin/blkparse -i t >text 2>/dev/null
grep -E ' C |Writes|R/W' text
grep -q ' C   D 2048 + 2097152 ' text
grep -qE 'Writes Completed: +2, +1048MiB' text
[ "$(grep -ci discard text)" = 0 ]
mkdir replay
usr/sbin/btrecord -d . -D replay t
python3 - <<'PYTHON'
import struct

data = open("replay/t.replay.0", "rb").read()
# A header of 32 bytes, a bunch of packets of 16 bytes, then packets: sector, length, and 1 for a read or 0 for a write.
packets = [struct.unpack_from("<QQI", data, offset) for offset in range(48, len(data), 24)]
print(packets)
assert packets == [(8, 4096, 0), (2048, 1 << 30, 0)]
PYTHON
