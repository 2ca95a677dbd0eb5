#!/bin/bash
# img2simg stores the holes of an image as zeros to be written, though its format can say "don't care".
#
# android-sdk-libsparse-utils 1:29.0.6-28 (Debian 12). The input is a file of 64 MiB that is a hole except for 1 MiB.
# Seen: the sparse image has a chunk of the kind "fill" with the value 0 on each side of the data, and no chunk "don't care".
# simg2img writes them: the file that comes back takes up 64 MiB. A flash tool has to write them as well.
# The result is the same for an image whose free space was trimmed and for an image filled with zeros.
# So space that was discarded before the conversion is written and taken up again on the device.
# Exit code 1: this has changed. Needs a file system that supports holes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -o APT::Sandbox::User=root download -qq android-sdk-libsparse-utils=1:29.0.6-28 android-libsparse=1:29.0.6-28 \
    android-libbase=1:29.0.6-28 android-liblog=1:29.0.6-28
for package in *.deb; do dpkg -x "$package" .; done
export LD_LIBRARY_PATH=$dir/usr/lib/x86_64-linux-gnu:$dir/usr/lib/x86_64-linux-gnu/android
truncate -s 64M holes
python3 -c '
import random
with open("holes", "r+b") as image:
    image.seek(3 << 20)
    image.write(random.Random(1).randbytes(1 << 20))'
cp --sparse=never holes zeros
usr/bin/img2simg holes holes.simg
usr/bin/img2simg zeros zeros.simg
usr/bin/simg2img holes.simg back
cmp holes.simg zeros.simg
cmp holes back
python3 - <<'PYTHON'
import os
import struct

data = open("holes.simg", "rb").read()
magic, _, _, header, _, block, blocks, chunks, _ = struct.unpack_from("<I4H4I", data)
assert magic == 0xED26FF3A and block * blocks == 64 << 20
kinds = {0xCAC1: "raw", 0xCAC2: "fill", 0xCAC3: "don't care", 0xCAC4: "checksum"}
found = []
for _ in range(chunks):
    kind, _, length, size = struct.unpack_from("<HHII", data, header)
    value = struct.unpack_from("<I", data, header + 12)[0] if kind == 0xCAC2 else None
    found.append((kinds[kind], length * block >> 20, value))
    header += size
before, after = (os.stat(name).st_blocks >> 11 for name in ("holes", "back"))
print(f"chunks with their MiB: {found}; the file took up {before} MiB, and takes up {after} MiB")
assert found == [("fill", 3, 0), ("raw", 1, None), ("fill", 60, 0)]
assert before == 1 and after == 64
PYTHON
