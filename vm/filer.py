#!/usr/bin/env python3
"""Mounts a network file system whose server never answers: whoever looks into it waits until this process ends.

usage: filer.py DIRECTORY
"""

import ctypes
import os
import signal
import sys

connection = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={connection},rootmode=40000,user_id=0,group_id=0"
if libc.mount(b"filer:/export", sys.argv[1].encode(), b"fuse.sshfs", 0, options.encode()):
    sys.exit(os.strerror(ctypes.get_errno()))
signal.pause()
