#!/bin/bash
# Writing 0 to discard_max_bytes of a block device can't be taken back, and a loop device keeps it for its next file.
#
# util-linux 2.38.1-5+deb12u3 (Debian 12), Linux 6.18; NVMe, SCSI and virtio disks of Linux 6.12 do the same. The input is a loop
# device over an empty file. The kernel's documentation calls this limit writable and names no exception.
# Seen: the device takes the limit 1 GiB, then 0. discard_granularity is 0 from then on, and a limit has to be a multiple of it:
# 1 GiB and the hardware's own limit are refused (EINVAL). After losetup detached the file and attached another one, discards are
# still off. So a udev rule or a tuning program that turns discards off for a while has turned them off until the device is gone.
# Exit code 1: this has changed. Needs root and loop devices.
set -eu
dir=$(mktemp -d)
loop=
clean() {
    ! losetup "$loop" >/dev/null 2>&1 || losetup -d "$loop"
    # The number forgets its limit when it is removed (LOOP_CTL_REMOVE); it comes back by itself.
    [ -z "$loop" ] || python3 -c 'import fcntl, sys; fcntl.ioctl(open("/dev/loop-control"), 0x4C81, int(sys.argv[1]))' "${loop#/dev/loop}"
    rm -rf "$dir"
}
trap clean EXIT
cd "$dir"
apt-get -o APT::Sandbox::User=root download -qq util-linux=2.38.1-5+deb12u3 mount=2.38.1-5+deb12u3
for package in *.deb; do dpkg -x "$package" .; done
# A number that nobody has used.
number=$(python3 -c 'import fcntl; print(next(n for n in range(64, 4096) if fcntl.ioctl(open("/dev/loop-control"), 0x4C80, n) == n))')
loop=/dev/loop$number
truncate -s 64M file other
sbin/losetup "$loop" file
queue=/sys/block/loop$number/queue
limits() { echo "$(<"$queue/discard_max_bytes") by $(<"$queue/discard_granularity")"; }
taken() { if { echo "$1" >"$queue/discard_max_bytes"; } 2>/dev/null; then echo taken; else echo refused; fi; }

before=$(taken $((1 << 30)))
off=$(taken 0)
limits_off=$(limits)
again=$(taken $((1 << 30)))
hardware=$(taken "$(<"$queue/discard_max_hw_bytes")")
sbin/losetup -d "$loop"
sbin/losetup "$loop" other
next=$(limits)
echo "1 GiB: $before, 0: $off ($limits_off); then 1 GiB: $again, the hardware's: $hardware; with another file: $next"
[ "$before $off $limits_off" = "taken taken 0 by 0" ]
[ "$again $hardware" = "refused refused" ]
[ "$next" = "0 by 0" ]
