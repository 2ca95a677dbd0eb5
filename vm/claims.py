"""What the test vm/claims needs and no program that it asks for makes: an NBD device, bcache, an erofs on a file,
eCryptfs, a simulated Fibre Channel, and io_urings with files that no descriptor shows."""

import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
import threading

# linux/nbd.h
SET_SOCK, SET_BLOCK_SIZE, DO_IT, SET_BLOCKS, SET_FLAGS = 0xAB00, 0xAB01, 0xAB03, 0xAB07, 0xAB0A
HAS_FLAGS_AND_TRIM = 1 | 1 << 5
REQUEST = struct.Struct(">IIQQI")
READ, WRITE = 0, 1
BLOCK = 4096


def nbd(device, image):
    """Serves the file as the device until it is killed; the device is opened for reading alone."""
    ours, theirs = socket.socketpair()
    node = os.open(device, os.O_RDONLY)
    size = os.stat(image).st_size
    for operation, value in [
        (SET_BLOCK_SIZE, BLOCK),
        (SET_BLOCKS, size // BLOCK),
        (SET_FLAGS, HAS_FLAGS_AND_TRIM),
        (SET_SOCK, theirs.fileno()),
    ]:
        fcntl.ioctl(node, operation, value)
    threading.Thread(target=serve, args=(ours, image), daemon=True).start()
    fcntl.ioctl(node, DO_IT)


def serve(connection, image):
    file = os.open(image, os.O_RDWR)
    requests = connection.makefile("rb")
    while request := requests.read(REQUEST.size):
        _, kind, handle, start, length = REQUEST.unpack(request)
        answer = struct.pack(">IIQ", 0x67446698, 0, handle)
        if kind == READ:
            answer += os.pread(file, length, start)
        elif kind == WRITE:
            os.pwrite(file, requests.read(length), start)
        connection.sendall(answer)


def erofs_image(path):
    """Makes an image with an empty root directory; see fs/erofs/erofs_fs.h."""
    image = bytearray(2 * BLOCK)
    superblock = (0xE0F5E1E2, 0, 0, 12, 0, 36, 1, 0, 0, 2, 0, 0, b"", b"", 0, 0, 0, 0)
    struct.pack_into("<IIIBBHQQIIII16s16sIHHH", image, 1024, *superblock)
    struct.pack_into("<HHHHIIIIHHI", image, 36 * 32, 0, 0, 0o40755, 2, 27, 0, 1, 1, 0, 0, 0)
    struct.pack_into("<QHBBQHBB3s", image, BLOCK, 36, 24, 2, 0, 36, 25, 2, 0, b"...")
    with open(path, "wb") as file:
        file.write(image)
        file.truncate(64 << 20)


def erofs_mount(source, target):
    """Mounts the file itself: mount(8) would put it behind a loop device."""
    libc = ctypes.CDLL(None, use_errno=True)
    read_only = 1
    if libc.mount(os.fsencode(source), os.fsencode(target), b"erofs", read_only, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")


# linux/mount.h, and the numbers of the system calls on all architectures
FSOPEN, FSCONFIG, FSMOUNT = 430, 431, 432
SET_STRING, CREATE = 1, 6


def detached_mount(source, ready):
    """Mounts an ext4 where no list of mounts shows it, makes `ready`, and waits."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    context = call(FSOPEN, b"ext4", 0)
    assert call(FSCONFIG, context, SET_STRING, b"source", os.fsencode(source), 0) == 0
    assert call(FSCONFIG, context, CREATE, None, None, 0) == 0
    assert call(FSMOUNT, context, 0, 0) >= 0
    os.close(context)
    open(ready, "w").close()
    signal.pause()


ADD_KEY, PROCESS_KEYRING = 248, -2
# include/linux/ecryptfs.h
VERSION, PASSWORD_TOKEN, PERSISTENT, KEY_IS_SET, KEY_BYTES = 4, 0, 1, 2, 16


def ecryptfs(lower, target):
    """Mounts eCryptfs over the directory `lower` with a key of zeros."""
    libc = ctypes.CDLL(None, use_errno=True)
    signature = b"0123456789abcdef"
    token = struct.pack("<HHI588x32x", VERSION, PASSWORD_TOKEN, 0)
    token += struct.pack("<IiIII64s17s8s3x", 0, 0, 0, KEY_BYTES, PERSISTENT | KEY_IS_SET, b"", signature, b"")
    if libc.syscall(ADD_KEY, b"user", signature, token, len(token), PROCESS_KEYRING) < 0:
        raise OSError(ctypes.get_errno(), "add_key")
    options = b"ecryptfs_sig=%s,ecryptfs_cipher=aes,ecryptfs_key_bytes=%d" % (signature, KEY_BYTES)
    if libc.mount(os.fsencode(lower), os.fsencode(target), b"ecryptfs", 0, options) != 0:
        raise OSError(ctypes.get_errno(), "mount")


# FC_PORT_ROLE_NVME_TARGET and FC_PORT_ROLE_NVME_DISCOVERY of include/uapi/scsi/fc/fc_fs.h
TARGET_ROLES = 0x60


def fcloop(subsystem):
    """Connects this machine to its own nvmet by a Fibre Channel that is only simulated (drivers/nvme/target/fcloop.c)."""
    names = {"target": ("0x10001100ab000001", "0x20001100ab000001"), "host": ("0x10001100aa000001", "0x20001100aa000001")}
    node = {side: f"wwnn={node},wwpn={port}" for side, (node, port) in names.items()}
    address = {side: f"nn-{node}:pn-{port}" for side, (node, port) in names.items()}
    settings = os.path.join(subsystem, "../../ports/1")
    os.mkdir(settings)
    local = "lpwwnn={},lpwwpn={}".format(*names["host"])
    for path, text in [
        ("/sys/class/fcloop/ctl/add_target_port", node["target"]),
        ("/sys/class/fcloop/ctl/add_local_port", node["host"]),
        ("/sys/class/fcloop/ctl/add_remote_port", f"{node['target']},{local},roles={TARGET_ROLES:#x}"),
        (f"{subsystem}/attr_allow_any_host", "1"),
        (f"{settings}/addr_trtype", "fc"),
        (f"{settings}/addr_adrfam", "fc"),
        (f"{settings}/addr_traddr", address["target"]),
    ]:
        with open(path, "w") as file:
            file.write(text)
    name = os.path.basename(subsystem)
    os.symlink(subsystem, f"{settings}/subsystems/{name}")
    with open("/dev/nvme-fabrics", "r+b", buffering=0) as fabrics:
        where = f"transport=fc,traddr={address['target']},host_traddr={address['host']},nqn={name}"
        fabrics.write(where.encode())


# include/uapi/linux/bcache.h of Linux 5.4
BCACHE_MAGIC = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
CACHE, BACKING = 0, 1
BCACHE_SECTOR = 8


def crc64(data):
    """The checksum of bcache; the polynomial is that of ECMA-182."""
    everything = (1 << 64) - 1
    check = everything
    for byte in data:
        check ^= byte << 56
        for _ in range(8):
            check = (check << 1 ^ (0x42F0E1EBA9EA3693 if check >> 63 else 0)) & everything
    return check ^ everything


def bcache(backing, cache):
    """Writes the superblocks of a backing device and of a cache, which are not attached to each other."""
    cache_set = os.urandom(16)
    for path, version in (backing, BACKING), (cache, CACHE):
        with open(path, "r+b") as file:
            bucket = 64
            buckets = file.seek(0, os.SEEK_END) // 512 // bucket
            start = 2 * BCACHE_SECTOR if version == BACKING else buckets
            text = struct.pack("<QQ16s16s16s32x", BCACHE_SECTOR, version, BCACHE_MAGIC, os.urandom(16), cache_set)
            text += struct.pack("<80xQHHHHIHH", start, 1, bucket, 1, 0, 0, 1, 0)
            file.seek(BCACHE_SECTOR * 512)
            file.write(struct.pack("<Q", crc64(text)) + text)


def overlap(disk):
    """Writes a partition table in which the second partition begins within the first."""
    table = bytearray(512)
    linux = 0x83
    for number, start, sectors in (0, 2048, 150000), (1, 100000, 150000):
        struct.pack_into("<B3sB3sII", table, 446 + 16 * number, 0, b"", linux, b"", start, sectors)
    table[510:] = b"\x55\xaa"
    with open(disk, "r+b") as file:
        file.write(table)


# linux/io_uring.h, and the numbers of the system calls on all architectures that Linux got after 2019
SETUP, REGISTER = 425, 427
REGISTER_FILES, REGISTER_RING_FDS = 2, 20
SETUP_SQPOLL = 1 << 1
RING_SIZE = 4096


def ring(kind, path, ready):
    """Registers the file with an io_uring, closes it, makes `ready`, and waits. Of the kinds, the descriptor of a
    "mapped" and of a "polled" ring is closed, and only the latter has a thread in the kernel."""
    call = ctypes.CDLL(None, use_errno=True).syscall

    def checked(*arguments):
        result = call(*arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), "io_uring")
        return result

    parameters = bytearray(120)
    struct.pack_into("<I", parameters, 8, SETUP_SQPOLL if kind == "polled" else 0)
    descriptor = checked(SETUP, 4, ctypes.create_string_buffer(bytes(parameters), 120))
    file = os.open(path, os.O_RDWR)
    checked(REGISTER, descriptor, REGISTER_FILES, (ctypes.c_int * 1)(file), 1)
    os.close(file)
    if kind == "deleted":
        os.unlink(path)
    if kind in ("mapped", "polled"):
        anywhere = (1 << 32) - 1
        update = struct.pack("<IIQ", anywhere, 0, descriptor)
        checked(REGISTER, descriptor, REGISTER_RING_FDS, ctypes.create_string_buffer(update, 16), 1)
        if kind == "mapped":
            read_write, shared = 3, 1
            place = ctypes.CDLL(None).mmap
            place.restype = ctypes.c_void_p
            assert place(None, RING_SIZE, read_write, shared, descriptor, ctypes.c_long(0)) != ctypes.c_void_p(-1).value
        os.close(descriptor)
    open(ready, "w").close()
    signal.pause()


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    {
        "nbd": nbd,
        "bcache": bcache,
        "detached-mount": detached_mount,
        "ecryptfs": ecryptfs,
        "erofs-image": erofs_image,
        "erofs-mount": erofs_mount,
        "fcloop": fcloop,
        "overlap": overlap,
        "ring": ring,
    }[verb](*arguments)
