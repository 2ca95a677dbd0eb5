#!/bin/bash
# FS_IOC_GETFSMAP of one block of an ext4 takes time in proportion to the number of all block groups.
#
# e2fsprogs 1.47.0-2+b2 (Debian 12), Linux 6.18. The input are two empty ext4 in sparse files, of 16 GiB (128 groups) and of
# 4 TiB (32768 groups). Each is asked 20 times for the map of its first 4 KiB.
# Seen: 0.1 ms and 30 ms of processor time a call. The kernel lists the metadata of all groups and sorts the list at every
# call, whatever the range. So a program that asks for the free space of a large ext4 piece by piece takes quadratic time.
# Exit code 1: this has changed. Needs root and a loop device.
set -eu
dir=$(mktemp -d)
clean() {
    ! mountpoint -q "$dir/mnt" || umount "$dir/mnt"
    rm -rf "$dir"
}
trap clean EXIT
cd "$dir"
apt-get -o APT::Sandbox::User=root download -qq e2fsprogs=1.47.0-2+b2
dpkg -x e2fsprogs_*.deb .
mkdir mnt
cat >ask.py <<'END'
import fcntl, os, resource, struct, sys
GETFSMAP = 0xC0C0583B
directory = os.open(sys.argv[1], os.O_RDONLY)
device = os.fstat(directory).st_dev
def key(flags, physical, owner, offset):
    return struct.pack("=IIQQQQ24x", device, flags, physical, owner, offset, 0)
def system():
    return resource.getrusage(resource.RUSAGE_SELF).ru_stime
begun = system()
for _ in range(20):
    keys = key(0, 0, 0, 0) + key(2**32 - 1, 4095, 2**64 - 1, 2**64 - 1)
    fcntl.ioctl(directory, GETFSMAP, bytearray(struct.pack("=IIII48x", 0, 0, 4, 0) + keys + bytes(4 * 64)))
print(round((system() - begun) / 20 * 1e6))
END

# Microseconds of system time for a call on an ext4 of that size.
took() {
    truncate -s "$1" image
    sbin/mkfs.ext4 -qF -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 image
    mount -o loop,noinit_itable image mnt
    python3 ask.py mnt
    umount mnt
    rm image
}

small=$(took 16G)
large=$(took 4T)
echo "$small us on 16 GiB, $large us on 4 TiB"
[ "$large" -gt 2000 ]
[ "$large" -gt $((small * 20)) ]
