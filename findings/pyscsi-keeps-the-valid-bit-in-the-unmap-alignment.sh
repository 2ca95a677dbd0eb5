#!/bin/bash
# PySCSI adds the flag UGAVALID to the UNMAP granularity alignment of a disk, as 2^31 blocks.
#
# pyscsi 2.1.0 and sg3-utils 1.46-3 (Debian 12). The input is a Block Limits page (B0h) of a disk that unmaps units of 2048
# blocks, the first at block 5. Bit 7 of byte 32 is UGAVALID; the alignment is the 31 bits behind it.
# Seen: sg_vpd prints 5. PySCSI returns ugavalid 1 and unmap_gran_alignment 2147483653: its two fields overlap.
# So the alignment is right only if the device marks it as not valid. A program that starts at this block, with blocks of
# 512 bytes, leaves out the first TiB of the disk.
# Exit code 1: this has changed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -o APT::Sandbox::User=root download -qq sg3-utils=1.46-3 libsgutils2-1.46-2=1.46-3
for package in *.deb; do dpkg -x "$package" .; done
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target packages pyscsi==2.1.0
PYTHONPATH=packages python3 - <<'PYTHON'
import struct

from pyscsi.pyscsi.scsi_cdb_inquiry import Inquiry

page = bytearray(64)
page[1], page[3] = 0xB0, 60
# Maximum UNMAP LBA count and descriptor count, optimal granularity, and UGAVALID with the alignment.
struct.pack_into(">4I", page, 20, 0xFFFFFFFF, 1, 2048, 1 << 31 | 5)
open("page.hex", "w").write(page.hex(" ") + "\n")
found = Inquiry.unmarshall_datain(page, evpd=1)
print({name: found[name] for name in ("opt_unmap_gran", "ugavalid", "unmap_gran_alignment")})
assert (found["opt_unmap_gran"], found["ugavalid"]) == (2048, 1)
assert found["unmap_gran_alignment"] == (1 << 31 | 5)
PYTHON
LD_LIBRARY_PATH=usr/lib/x86_64-linux-gnu usr/bin/sg_vpd --inhex=page.hex >text
grep -i 'unmap granularity' text
grep -q 'Unmap granularity alignment: 5$' text
