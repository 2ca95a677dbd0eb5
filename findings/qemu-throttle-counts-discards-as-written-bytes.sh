#!/bin/bash
# QEMU's throttle filter counts the length of a discard as written bytes, so that a discard blocks later writes.
#
# qemu-utils 1:7.2+dfsg-7+deb12u18+b3 (Debian 12). The input is a disk of 1 TiB without storage. A throttle group limits writes
# to 16 MiB per second. qemu-io discards a range and then writes 512 bytes; without a discard this takes some milliseconds.
# Seen: a discard of 32 MiB delays the write by 2 seconds. A request of 32 MiB that writes zeros and may unmap does the same.
# A write of 32 MiB of data delays it as long. A limit of 16 requests per second counts the discard as one request.
# So a guest's fstrim costs as much as writing its free space. With 100 MiB per second, a trim of 1 TiB blocks the guest's
# writes for almost 3 hours.
# Exit code 1: this has changed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -o APT::Sandbox::User=root download -qq qemu-utils=1:7.2+dfsg-7+deb12u18+b3 libaio1=0.3.113-4 liburing2=2.3-3
for package in *.deb; do dpkg -x "$package" .; done
export LD_LIBRARY_PATH=$dir/usr/lib/x86_64-linux-gnu

# The milliseconds that a request and a write after it take together, under a limit.
taken() {
    local begin
    begin=$(date +%s%N)
    timeout 60 usr/bin/qemu-io --object "throttle-group,id=group,$1" --image-opts \
        driver=throttle,throttle-group=group,discard=unmap,file.driver=null-co,file.size=1T \
        -c "$2" -c 'write -q 1G 512' || exit 1
    echo $((($(date +%s%N) - begin) / 1000000))
}

bytes=x-bps-write=$((16 << 20))
small=$(taken $bytes 'discard -q 0 512')
discard=$(taken $bytes 'discard -q 0 32M')
zeros=$(taken $bytes 'write -q -z -u 0 32M')
data=$(taken $bytes 'write -q 0 32M')
request=$(taken x-iops-write=16 'discard -q 0 32M')
echo "limit of bytes, ms: discard of 512 bytes $small, discard of 32 MiB $discard, zeros $zeros, data $data"
echo "limit of requests, ms: discard of 32 MiB $request"
for delayed in "$discard" "$zeros" "$data"; do [ "$delayed" -gt 1500 ]; done
for prompt in "$small" "$request"; do [ "$prompt" -lt 1000 ]; done
