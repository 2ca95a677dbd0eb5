#!/bin/bash
# mkfs.ext4 and mkfs.f2fs free the blocks of a preallocated image file, and report success; mkfs.xfs and mkfs.btrfs keep them.
#
# e2fsprogs 1.47.0-2+b2, f2fs-tools 1.15.0-1, xfsprogs 6.1.0-1 and btrfs-progs 6.2-1+deb12u2 (Debian 12). The input is a file
# of 512 MiB that fallocate has reserved, such as the disk of a virtual machine that must not run out of space.
# Seen: mkfs.ext4 and mkfs.f2fs discard the device before they write, and a discard of a regular file punches holes. Less than
# 5 % of the blocks remain. mkfs.xfs and mkfs.btrfs keep all of them, and so do mkfs.ext4 -E nodiscard and mkfs.f2fs -t 0.
# So a full host can fail writes to an image whose space was reserved.
# Exit code 1: this has changed. Needs a file system that supports punching holes, and 512 MiB of free space.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -o APT::Sandbox::User=root download -qq e2fsprogs=1.47.0-2+b2 libext2fs2=1.47.0-2+b2 f2fs-tools=1.15.0-1 \
    xfsprogs=6.1.0-1 libinih1=55-1 liburcu8=0.13.2-1 btrfs-progs=6.2-1+deb12u2
for package in *.deb; do dpkg -x "$package" .; done
export LD_LIBRARY_PATH=$dir/usr/lib/x86_64-linux-gnu:$dir/lib/x86_64-linux-gnu

# The percentage of the reserved blocks that a file keeps when a command makes a file system in it.
kept() {
    rm -f image
    fallocate --length 512M image
    local before
    before=$(stat -c %b image)
    "$@" image >log 2>&1 || exit 1
    echo $(($(stat -c %b image) * 100 / before))
}

ext4=$(kept sbin/mkfs.ext4 -q)
f2fs=$(kept sbin/mkfs.f2fs -q)
xfs=$(kept sbin/mkfs.xfs -q)
btrfs=$(kept sbin/mkfs.btrfs -q)
ext4_nodiscard=$(kept sbin/mkfs.ext4 -q -E nodiscard)
f2fs_nodiscard=$(kept sbin/mkfs.f2fs -q -t 0)
echo "blocks kept: ext4 $ext4 %, f2fs $f2fs %, XFS $xfs %, btrfs $btrfs %"
echo "blocks kept without discards: ext4 $ext4_nodiscard %, f2fs $f2fs_nodiscard %"
[ "$ext4" -lt 5 ]
[ "$f2fs" -lt 5 ]
[ "$xfs" = 100 ]
[ "$btrfs" = 100 ]
[ "$ext4_nodiscard" = 100 ]
[ "$f2fs_nodiscard" = 100 ]
