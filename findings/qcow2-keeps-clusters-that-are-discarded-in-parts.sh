#!/bin/bash
# QEMU reports success for discards of less than a qcow2 cluster and frees nothing, even with subclusters.
#
# qemu-utils 1:7.2+dfsg-7+deb12u18+b3 (Debian 12). The input is a qcow2 of 1 MiB, fully written, with extended L2 entries:
# clusters of 128 KiB that have 32 subclusters of 4 KiB. The format can mark each subcluster as zeros or as unallocated.
# Seen: 256 discards of 4 KiB, which cover the whole image, all succeed. qemu-img map still shows 1 MiB of data, and the file
# keeps its blocks. Writes of zeros that may unmap mark both halves of a cluster as zeros, and keep its blocks too.
# One discard of a whole cluster frees it. So a guest that trims in small pieces frees nothing, and sees no error:
# the pieces have to be merged to clusters before they reach QEMU.
# Exit code 1: this has changed. Needs a file system that supports punching holes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -o APT::Sandbox::User=root download -qq qemu-utils=1:7.2+dfsg-7+deb12u18+b3 libaio1=0.3.113-4 liburing2=2.3-3
for package in *.deb; do dpkg -x "$package" .; done
export LD_LIBRARY_PATH=$dir/usr/lib/x86_64-linux-gnu
usr/bin/qemu-img create -q -f qcow2 -o extended_l2=on,cluster_size=128k image 1M
usr/bin/qemu-io -d unmap -c 'write -q -P 1 0 1M' image

# The KiB of the image that are data, and the KiB that the file takes up.
sizes() {
    usr/bin/qemu-img map --output=json image | python3 -c '
import json, os, sys
print(sum(e["length"] for e in json.load(sys.stdin) if e["data"]) >> 10, os.stat("image").st_blocks >> 1)'
}

written=$(sizes)
for offset in $(seq 0 4 1020); do echo "discard ${offset}k 4k"; done | usr/bin/qemu-io -d unmap image >log
in_parts=$(sizes)
usr/bin/qemu-io -d unmap -c 'write -q -z -u 128k 64k' -c 'write -q -z -u 192k 64k' image
zeroed=$(sizes)
usr/bin/qemu-io -d unmap -c 'discard -q 256k 128k' image
whole=$(sizes)
echo "KiB of data and of the file: $written written, $in_parts discarded in parts, $zeroed zeroed in parts, $whole discarded"
[ "$(grep -c 'discard 4096/4096 bytes at offset' log)" = 256 ]
[ "$in_parts" = "$written" ]
[ "${written% *}" = 1024 ]
[ "$zeroed" = "896 ${written#* }" ]
[ "$whole" = "768 $((${written#* } - 128))" ]
