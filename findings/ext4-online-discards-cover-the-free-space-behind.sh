#!/bin/bash
# With -o discard, ext4 discards more than what was freed: also the free space behind it, up to the end of its block group.
#
# e2fsprogs 1.47.0-2+b2 (Debian 12), Linux 6.18. The input is an empty ext4 of 1 GiB in a sparse file. It gets 200 files of
# 256 KiB, 50 MiB in all, which are deleted one by one, the last one first, with a sync after each.
# Seen: some 200 discards of 20 GiB in all, 400 times what was freed. In the order in which the files were written, 0.1 GiB.
# So a counter of discarded bytes says nothing of how much was freed, and a drive whose discards cost time by their length, or a
# thin pool below, works for the same free space again and again.
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

# Prints how many MiB are discarded while the files are deleted in the order of these numbers.
discarded() {
    truncate -s 1G image
    sbin/mkfs.ext4 -qF -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 image
    mount -o loop,discard,noinit_itable image mnt
    stat=/sys/dev/block/$(mountpoint -d mnt)/stat
    for file in $(seq 200); do
        head -c 256K /dev/zero >"mnt/$file"
    done
    sync -f mnt
    # Sectors discarded are the fourteenth figure.
    before=$(awk '{ print $14 }' "$stat")
    for file in "$@"; do
        rm "mnt/$file"
        sync -f mnt
    done
    # A worker of the kernel discards, a little later.
    sleep 2
    after=$(awk '{ print $14 }' "$stat")
    umount mnt
    rm image
    echo $(((after - before) / 2048))
}

forwards=$(discarded $(seq 200))
backwards=$(discarded $(seq 200 -1 1))
echo "$forwards MiB discarded in the order of writing, $backwards MiB backwards, of 50 MiB that were freed"
[ "$forwards" -lt 500 ]
[ "$backwards" -gt 2500 ]
