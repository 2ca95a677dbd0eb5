#!/bin/bash
# fstrim of NTFS3 discards data that is in use: of a range, and of a whole volume where much is full between free stretches.
#
# Linux 6.12.117-1~deb12u1 in QEMU 1:7.2+dfsg-7+deb12u18+b3, and mkntfs of ntfs-3g 1:2022.10.3-1+deb12u4 (Debian 12). NTFS3 keeps its map of
# clusters in windows, of 4096 clusters or 2 MiB here; of 32768 clusters or 128 MiB where they have 4 KiB. The input is a volume of
# 48 MiB with clusters of 512 bytes, twice:
# - range: it holds 20 files of 1 MiB; then fstrim of 24 ranges of 1 MiB, one in each window.
# - whole: it is filled. All files are deleted but those that fill the window from 40 to 42 MiB; then fstrim.
# Seen: no file is lost before. Afterwards the first volume can't be mounted, and 32 of 33 files of the other are lost. Where a
# range ends, NTFS3 makes its windows shorter, and takes their numbers times the new length for their addresses. It passes over a
# full window in the middle of a free extent, whose rest then gets an address that is too low. The code is the same from Linux 5.15 to
# 6.18. Without the mount option discard, nothing is discarded.
# Exit code 1: this has changed. Takes two minutes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir root guest guest/bin guest/lib guest/proc guest/dev guest/mnt
# Of the libraries, the versions that these packages ask for.
depends() {
    apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$@" |
        grep -x '[a-z0-9][a-z0-9.+-]*' | grep -x 'lib.*\|zlib.*\|seabios\|qemu-system-.*' | grep -vx "qemu-system-x86\|libperl.*"
}
# shellcheck disable=SC2046
apt-get -o APT::Sandbox::User=root download -qq qemu-system-x86=1:7.2+dfsg-7+deb12u18+b3 linux-image-6.12.117+deb12-amd64=6.12.117-1~deb12u1 \
    busybox-static=1:1.35.0-4+deb12u1+b1 e2fsprogs=1.47.0-2+b2 ntfs-3g=1:2022.10.3-1+deb12u4 $(depends qemu-system-x86 e2fsprogs ntfs-3g)
for package in *.deb; do dpkg -x "$package" root; done
rm ./*.deb
export QEMU_MODULE_DIR=$dir/root/usr/lib/x86_64-linux-gnu/qemu
export LD_LIBRARY_PATH=$dir/root/usr/lib/x86_64-linux-gnu:$dir/root/lib/x86_64-linux-gnu

cp root/bin/busybox guest/bin/busybox
cp root/usr/sbin/filefrag guest/bin/
libraries=$(find root -name libext2fs.so.2 -o -name libcom_err.so.2 -o -name libc.so.6 -o -name ld-linux-x86-64.so.2)
for library in $libraries; do cp -L "$library" guest/lib/; done
ln -s lib guest/lib64
for module in virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk ntfs3; do
    find root/lib/modules -name "$module.ko.xz" -exec sh -c "xz -dc {} >guest/$module.ko" \;
done
cat >guest/init <<'END'
#!/bin/busybox sh
export PATH=/bin LD_LIBRARY_PATH=/lib
/bin/busybox --install -s /bin
mount -t devtmpfs none /dev
mount -t proc none /proc
for module in virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk ntfs3; do
    insmod /$module.ko
done
again() {
    umount /mnt
    echo 3 >/proc/sys/vm/drop_caches
    mount -t ntfs3 -o discard "$1" /mnt
}
# Says how many files are not what they were.
lost() {
    again "$1" && echo "$2: $(md5sum -c /sums 2>/dev/null | grep -vc OK) of $(wc -l </sums) files lost" || echo "$2: not mounted"
}
# First and last cluster and name of each piece of each file.
map() {
    for name in /mnt/*; do
        filefrag -b512 -v "$name" | sed -n 's/^ *[0-9]*: *[0-9]*\.\. *[0-9]*: *\([0-9]*\)\.\. *\([0-9]*\):.*/\1 \2/p' | sed "s|\$| $name|"
    done
}

mount -t ntfs3 -o discard /dev/vda /mnt
for file in $(seq 20); do head -c 1048576 /dev/urandom >/mnt/file$file; done
md5sum /mnt/file* >/sums
lost /dev/vda 'range, before'
for start in $(seq 0 2097152 48234496); do fstrim -o $start -l 1048576 /mnt; done
lost /dev/vda 'range, after'
umount /mnt

mount -t ntfs3 -o discard /dev/vdb /mnt
file=1000
for size in 65536 4096 1024; do
    while head -c $size /dev/urandom >/mnt/file$file; do file=$((file + 1)); done 2>/dev/null
    rm -f /mnt/file$file
    sync
done
map >/map
# A file across an edge of the window becomes two.
for edge in 81920 86016; do
    set -- $(awk -v edge=$edge '$1 < edge && $2 >= edge' /map)
    [ $# = 3 ] || continue
    rm "$3"
    sync
    head -c $(((edge - $1) * 512)) /dev/urandom >/mnt/before$edge
    sync
    head -c $((($2 + 1 - edge) * 512)) /dev/urandom >/mnt/behind$edge
    sync
done
map >/map
awk '$1 >= 81920 && $2 < 86016 { print $3 }' /map | sort -u >/kept
awk '{ print $3 }' /map | sort -u | grep -vxFf /kept | xargs rm
xargs md5sum </kept >/sums
lost /dev/vdb 'whole, before'
fstrim /mnt
lost /dev/vdb 'whole, after'
poweroff -f
END
chmod +x guest/init
(cd guest && find . | bin/busybox cpio -o -H newc | gzip -1) >initramfs
truncate -s 48M range whole
for image in range whole; do $(find root -name mkntfs | head -1) -c 512 -qFQ $image >said 2>&1; done
ld=$(find root -name 'ld-linux-x86-64.so.2' | head -1)
timeout 300 "$ld" --library-path "$LD_LIBRARY_PATH" root/usr/bin/qemu-system-x86_64 -L root/usr/share/qemu -L root/usr/share/seabios \
    -accel tcg -m 512 -nographic -no-reboot -nodefaults -serial stdio -kernel root/boot/vmlinuz-* -initrd initramfs \
    -append 'console=ttyS0 quiet panic=-1' -drive file=range,format=raw,if=virtio,discard=unmap \
    -drive file=whole,format=raw,if=virtio,discard=unmap </dev/null | tr -d '\r' | grep -a '^range\|^whole' | tee seen
[ "$(grep -c 'before: 0 of' seen)" = 2 ]
[ "$(grep -c 'after: [1-9]\|after: not mounted' seen)" = 2 ]
