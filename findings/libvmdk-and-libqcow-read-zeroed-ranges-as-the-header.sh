#!/bin/bash
# libvmdk and Debian's libqcow return bytes of the image's header for ranges that a guest discarded.
#
# libvmdk-python 20260714, libqcow1 20201213-1+b2 and qemu-utils 1:7.2+dfsg-7+deb12u18+b3 (Debian 12). The inputs are a VMDK
# with zeroed grains and a qcow2 image. qemu-io writes 512 KiB of "A" to each, then zeroes or discards 64 KiB of them.
# Both formats mark such a range as zeros: VMDK by grain table entry 1, qcow2 by bit 0 of the L2 entry.
# Seen: qemu-img reads zeros there. libvmdk takes the 1 for a sector number and reads "# Disk Descriptor"; libqcow takes the
# entry for offset 0 and reads "QFI". Neither reports an error. libqcow-python 20260703 reads zeros.
# So a program that checks with these libraries whether trimmed ranges read as zeros finds other data there.
# Exit code 1: this has changed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -o APT::Sandbox::User=root download -qq qemu-utils=1:7.2+dfsg-7+deb12u18+b3 libaio1=0.3.113-4 liburing2=2.3-3 \
    libqcow1=20201213-1+b2 libbfio1=20170123-6
for package in *.deb; do dpkg -x "$package" .; done
export LD_LIBRARY_PATH=$dir/usr/lib/x86_64-linux-gnu
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target packages \
    libvmdk-python==20260714 libqcow-python==20260703
usr/bin/qemu-img create -q -f vmdk -o zeroed_grain=on image.vmdk 1M
usr/bin/qemu-img create -q -f qcow2 image.qcow2 1M
usr/bin/qemu-io -d unmap -c 'write -q -P 0x41 0 512k' -c 'write -q -z -u 128k 64k' image.vmdk
usr/bin/qemu-io -d unmap -c 'write -q -P 0x41 0 512k' -c 'discard -q 128k 64k' image.qcow2
for image in image.vmdk image.qcow2; do
    usr/bin/qemu-img convert -O raw $image raw
    cmp -n 65536 -i 131072:0 raw /dev/zero
done
PYTHONPATH=packages python3 - <<'PYTHON'
import ctypes

import pyqcow
import pyvmdk

DISCARDED, WRITTEN = 128 << 10, 256 << 10

vmdk = pyvmdk.handle()
vmdk.open("image.vmdk")
vmdk.open_extent_data_files()
by_libvmdk = [vmdk.read_buffer_at_offset(17, offset) for offset in (DISCARDED, WRITTEN)]

libqcow = ctypes.CDLL("libqcow.so.1")
handle = ctypes.c_void_p()
assert libqcow.libqcow_file_initialize(ctypes.byref(handle), None) == 1
assert libqcow.libqcow_file_open(handle, b"image.qcow2", 1, None) == 1
read = libqcow.libqcow_file_read_buffer_at_offset
read.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_void_p]
read.restype = ctypes.c_ssize_t
by_libqcow = []
for offset in (DISCARDED, WRITTEN):
    buffer = ctypes.create_string_buffer(4)
    assert read(handle, buffer, 4, offset, None) == 4
    by_libqcow.append(buffer.raw)

newer = pyqcow.file()
newer.open("image.qcow2")
by_newer = [newer.read_buffer_at_offset(4, offset) for offset in (DISCARDED, WRITTEN)]
print(by_libvmdk, by_libqcow, by_newer)
assert by_libvmdk == [b"# Disk Descriptor", b"A" * 17]
assert by_libqcow == [b"QFI\xfb", b"AAAA"]
assert by_newer == [bytes(4), b"AAAA"]
PYTHON
