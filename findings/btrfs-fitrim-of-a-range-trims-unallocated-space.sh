#!/bin/bash
# FITRIM of a small range of a btrfs discards all of its unallocated space, once after each mount.
#
# btrfs-progs 6.2-1+deb12u2 and util-linux 2.38.1-5+deb12u3 (Debian 12), Linux 6.18. The input is an empty btrfs of 1 GiB on a
# loop device. fstrim asks for 64 KiB at its start, where no chunk is.
# Seen: fstrim reports some 900 MiB, and the device counts as many discarded bytes. A second call discards nothing; after the
# file system was unmounted and mounted again, it discards all of it again. So nobody can trim a part of a large btrfs for a
# short time only: the first call is as long as discards of the unallocated space of all its devices.
# Exit code 1: this has changed. Needs root and a loop device.
set -eu
dir=$(mktemp -d)
loop=
clean() {
    ! mountpoint -q "$dir/mnt" || umount "$dir/mnt"
    [ -z "$loop" ] || losetup -d "$loop"
    rm -rf "$dir"
}
trap clean EXIT
cd "$dir"
apt-get -o APT::Sandbox::User=root download -qq btrfs-progs=6.2-1+deb12u2 util-linux=2.38.1-5+deb12u3
for package in *.deb; do dpkg -x "$package" .; done
mkdir mnt
truncate -s 1G image
loop=$(losetup --find --show image)
sbin/mkfs.btrfs -qK "$loop"

# The MiB that the device counted as discarded during a trim of 64 KiB.
trimmed() {
    local stat=/sys/block/${loop#/dev/}/stat before
    before=$(awk '{print $14}' "$stat")
    sbin/fstrim --verbose --offset 0 --length 64K mnt >&2
    echo $((($(awk '{print $14}' "$stat") - before) / 2048))
}

mount "$loop" mnt
first=$(trimmed)
second=$(trimmed)
umount mnt
mount "$loop" mnt
third=$(trimmed)
echo "$first MiB, $second MiB, and $third MiB after mounting it again"
[ "$first" -gt 700 ]
[ "$second" = 0 ]
[ "$third" = "$first" ]
