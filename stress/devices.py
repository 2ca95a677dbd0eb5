"""Block devices for the stress scripts, and the layers that they lay over them."""

import errno
import os
import shutil
from pathlib import Path

from support import run


def lacking(layer):
    """Returns why this machine cannot have a layer of `Device.wrap`, or nothing."""
    program = {"lvremove": "lvm", "mdadm": "mdadm", "cryptsetup": "cryptsetup"}.get(layer, "dmsetup")
    if not shutil.which(program):
        return f"there is no {program}"
    if shutil.which("modprobe"):
        run("modprobe", "-a", *(("raid1",) if layer == "mdadm" else ("dm-mod", "dm-snapshot", "dm-mirror")), check=False)
    if layer == "mdadm":
        known = Path("/proc/mdstat")
        return None if known.exists() and "raid1" in known.read_text() else "the kernel has no mirrors (md)"
    return None if run("dmsetup", "version", check=False).returncode == 0 else "the kernel has no device mapper"


class Device:
    """A block device: a loop device over a file, or an emulated drive, perhaps below a layer of device mapper."""

    def __init__(self, stack, trimtab, kind, directory, size="1G", profile="ocz-vertex-le"):
        self.trimtab, self.name, self.layer = trimtab, f"stress-{os.getpid()}", None
        self.file = directory / f"{self.name}.data"
        self.kind = kind
        if kind == "drive":
            made = run(trimtab, "drive", "create", self.name, "--profile", profile, "--size", size, "--clock", "real",
                       "--data", self.file)
            stack.callback(self.remove)
            self.below = made.stdout.strip()
        else:
            run("truncate", "-s", size, self.file)
            stack.callback(self.file.unlink, missing_ok=True)
            self.below = run("losetup", "--find", "--show", "--direct-io=on", self.file).stdout.strip()
            stack.callback(self.remove)
        self.path = self.below

    def remove(self):
        """Removes it; returns what the program said, of which nothing means success."""
        if not self.below:
            return ""
        command = (self.trimtab, "drive", "rm", self.name) if self.kind == "drive" else ("losetup", "-d", self.below)
        done = run(*command, check=False)
        return done.stderr.strip()

    def wrap(self, stack, layer):
        """Lays a LUKS volume, a logical volume, a linear target or a mirror of one disk over the whole device."""
        self.layer = layer
        if layer == "cryptsetup":
            options = ("--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", "-")
            run("sh", "-c", f"printf word | cryptsetup luksFormat -q {' '.join(options)} {self.below}")
            self.open()
        elif layer == "lvremove":
            run("lvm", "vgcreate", "-qq", "-y", "--devices", self.below, self.name, self.below)
            self.open()
        elif layer == "mdadm":
            self.path = next(path for path in (f"/dev/md{number}" for number in range(64, 512)) if not os.path.exists(path))
            run("mdadm", "--create", self.path, "--run", "--force", "--level=1", "--raid-devices=1", "--metadata=1.2", self.below)
        else:
            self.open()
        stack.callback(self.close)

    def open(self):
        """Opens the layer, which `close` closed; a new logical volume is empty and leaves room for a snapshot."""
        if self.layer == "cryptsetup":
            run("sh", "-c", f"printf word | cryptsetup open --allow-discards --key-file - {self.below} {self.name}")
            self.path = f"/dev/mapper/{self.name}"
        elif self.layer == "lvremove":
            run("lvm", "lvcreate", "-qq", "-y", "-Wn", "--devices", self.below, "-n", "lv", "-l", "80%FREE", self.name)
            self.path = f"/dev/mapper/{self.name.replace('-', '--')}-lv"
        elif self.layer == "dmsetup":
            sectors = run("blockdev", "--getsz", self.below).stdout.strip()
            run("dmsetup", "create", self.name, "--table", f"0 {sectors} linear {self.below} 0")
            self.path = f"/dev/mapper/{self.name}"

    def close(self):
        """Closes the layer as an administrator does; returns the error, of which nothing means success."""
        commands = {
            "cryptsetup": ("cryptsetup", "close", self.name),
            "lvremove": ("lvm", "lvremove", "-y", "-qq", "--devices", self.below, f"{self.name}/lv"),
            "dmsetup": ("dmsetup", "remove", self.name),
            "mdadm": ("mdadm", "--stop", self.path),
        }
        if not os.path.exists(self.path):
            return ""
        done = run(*commands[self.layer], check=False)
        return done.stderr.strip() if done.returncode else ""

    def block(self):
        """Returns the name in sysfs of what the file system is on."""
        try:
            number = os.stat(self.path).st_rdev
        except FileNotFoundError:
            # The layer is closed.
            return os.path.basename(self.path)
        # A path of device mapper is a link to its node where udev made it, or a node of its own.
        return os.path.basename(os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"))

    def discards(self):
        """Returns how many discards ended, and how many milliseconds they took in all."""
        fields = Path(f"/sys/block/{self.block()}/stat").read_text().split()
        return int(fields[11]), int(fields[14])

    def busy(self):
        """Whether writes or discards are in flight."""
        return int(Path(f"/sys/block/{os.path.basename(self.below)}/inflight").read_text().split()[1]) > 0

    def copy(self, target):
        """Copies what the drive holds now, as if it were pulled out."""
        size = self.file.stat().st_size
        with open(self.file, "rb") as source, open(target, "wb") as copied:
            copied.truncate(size)
            at = 0
            while at < size:
                try:
                    at = os.lseek(source.fileno(), at, os.SEEK_DATA)
                except OSError as error:
                    if error.errno == errno.ENXIO:
                        break
                    raise
                end = os.lseek(source.fileno(), at, os.SEEK_HOLE)
                os.lseek(copied.fileno(), at, os.SEEK_SET)
                while at < end:
                    at += os.sendfile(copied.fileno(), source.fileno(), at, min(end - at, 1 << 26))
