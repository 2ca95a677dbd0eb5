#!/usr/bin/env python3
"""Mounts a direct automount point, refuses whoever wakes it, and adds a line to a file each time.

usage: autofs.py DIRECTORY FILE
"""

import ctypes
import fcntl
import os
import struct
import sys

FAIL = 0x9361  # AUTOFS_IOC_FAIL, include/uapi/linux/auto_fs.h
PACKET = 304  # sizeof(struct autofs_v5_packet), with its padding
TOKEN = struct.Struct("iiI")  # proto_version, type, wait_queue_token

directory, file = sys.argv[1:]
os.setsid()
open(file, "w").close()
read, write = os.pipe()
os.set_inheritable(write, True)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={write},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct"
if libc.mount(b"automount", directory.encode(), b"autofs", 0, options.encode()):
    sys.exit(os.strerror(ctypes.get_errno()))
os.close(write)
root = os.open(directory, os.O_RDONLY)
while packet := os.read(read, PACKET):
    token = TOKEN.unpack_from(packet)[2]
    with open(file, "a") as woken:
        woken.write("woken\n")
    fcntl.ioctl(root, FAIL, token)
