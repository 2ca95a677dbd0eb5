#!/bin/bash
# fio writes trims into an iolog, skips them when it replays the log, and exits with 0.
#
# fio 3.33-3 (Debian 12). The inputs are logs that fio writes itself with --write_iolog, of 4 trims with and without 4 writes.
# They are replayed with --read_iolog. The ioengine is "null", so that no device is needed.
# Seen: the replay of the mixed log has 4 writes and no trim. The only hint is "bad ddir: 2" on stderr, once per trim. The exit
# code is 0, and the JSON output has no error. The replay of a log without writes fails with EINVAL.
# A blktrace of the same trims is replayed with its trims. So a replay that includes trims needs a binary blktrace.
# The source of later versions counts trims of an iolog; this was read, not run.
# Exit code 1: this has changed. Needs the libraries on which the Debian package fio depends.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -o APT::Sandbox::User=root download -qq fio=3.33-3
dpkg -x fio_*.deb .
fio() { usr/bin/fio --name=job --ioengine=null --size=16k --bs=4k --output-format=json --output="$1.json" "${@:2}" 2>"$1.err"; }
fio mixed --rw=trimwrite --write_iolog=mixed.log
fio trims --rw=trim --write_iolog=trims.log
grep -cE ' (trim|write) ' mixed.log trims.log
python3 - <<'PYTHON'
import struct

WRITE, QUEUE, DISCARD = 1 << 1, 1 << 4, 1 << 13
with open("blktrace.bin", "wb") as out:
    for number in range(4):
        # struct blk_io_trace of linux/blktrace_api.h, version 7: a queued discard of 4 KiB by task 77 on device 8,0.
        action = 1 | (WRITE | QUEUE | DISCARD) << 16
        fields = (0x65617407, number + 1, number * 1000, number * 8, 4096, action, 77, 8 << 20, 0, 0, 0)
        out.write(struct.pack("<IIQQIIIIIHH", *fields))
PYTHON
fio mixed-replay --read_iolog=mixed.log
if fio trims-replay --read_iolog=trims.log; then exit 1; fi
fio blktrace-replay --read_iolog=blktrace.bin --replay_redirect=null
cat mixed-replay.err
[ "$(grep -c '^bad ddir: 2$' mixed-replay.err)" = 4 ]
python3 - <<'PYTHON'
import errno
import json


def requests(name):
    job = json.load(open(f"{name}.json"))["jobs"][0]
    return job["error"], job["write"]["total_ios"], job["trim"]["total_ios"]


for name in ("mixed", "mixed-replay", "trims-replay", "blktrace-replay"):
    print(f"{name}: error, writes, trims = {requests(name)}")
assert requests("mixed") == (0, 4, 4)
assert requests("mixed-replay") == (0, 4, 0)
assert requests("trims-replay") == (errno.EINVAL, 0, 0)
assert requests("blktrace-replay") == (0, 0, 4)
PYTHON
