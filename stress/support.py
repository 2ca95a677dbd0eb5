"""File systems and services for the stress scripts, all of which are removed when a script ends.

The scripts run in a mount namespace of their own, so that services outside do not see their mounts. Python 3.9, nothing else.
"""

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

MNT_DETACH, MNT_EXPIRE = 2, 4
FITRIM = 0xC0185879
RETRY = 0.005
# Does not leave a file system alone while it is new.
AT_ONCE = 'min_mount_age = "0s"\n'
LIBC = ctypes.CDLL(None, use_errno=True)
KINDS = ("ext4", "xfs", "btrfs", "btrfs-subvolume", "f2fs", "vfat")


def fail(text):
    """Ends the script with one line for the user."""
    sys.exit(f"{Path(sys.argv[0]).name}: {text}")


def prepare(options):
    """Isolates the script, and makes the path of the program `options.trimtab` whole; it ends the script if there is none."""
    isolate()
    options.trimtab = os.path.abspath(options.trimtab)
    if not os.access(options.trimtab, os.X_OK):
        fail(f"there is no program {options.trimtab}; name it with --trimtab")


def isolate():
    """Goes on in a mount namespace of its own with an empty /run; must be called before anything is made."""
    if os.geteuid() != 0:
        fail("needs root")
    if os.environ.get("TRIMTAB_STRESS_APART") != str(os.getpid()):
        os.environ["TRIMTAB_STRESS_APART"] = str(os.getpid())
        arguments = ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv]
        os.execvp("unshare", arguments)
    # The copies of other mounts would keep their file systems busy.
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        before, after = line.split(" - ")
        kind, source = after.split()[:2]
        if source.startswith("/dev/loop") or kind.startswith("fuse"):
            LIBC.umount2(unescape(before.split()[4]).encode(), MNT_DETACH)
    if shutil.which("modprobe"):
        run("modprobe", "-a", "loop", "fuse", check=False)
    run("mount", "-t", "tmpfs", "-o", "mode=755", "run", "/run")
    Path("/run/lock").mkdir()
    # Its socket is out of reach now, so that nobody else makes the nodes of mapped devices.
    os.environ["DM_DISABLE_UDEV"] = "1"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))


def unescape(path):
    """Returns a path of mountinfo without its octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path)


def run(*command, check=True, timeout=None, **options):
    """Runs a program quietly; raises an error with its last line unless it succeeds."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout, errors="replace", **options)
    if check and done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"{' '.join(map(str, command))}: {said[-1] if said else done.returncode}")
    return done


def supported(kind):
    """Returns why this machine cannot have the file system, or nothing."""
    kind = kind.split("-")[0]
    if not shutil.which(f"mkfs.{kind}"):
        return f"there is no mkfs.{kind}"
    run("modprobe", kind, check=False) if shutil.which("modprobe") else None
    names = [line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()]
    return None if kind in names else f"the kernel has no {kind}"


def until(deadline, done, pause=RETRY):
    """Waits until `done` returns something true; returns that, or nothing when the time is up."""
    end = time.monotonic() + deadline
    while True:
        found = done()
        if found or time.monotonic() > end:
            return found
        time.sleep(pause)


class FileSystem:
    """A file system on a device, which is mounted and unmounted."""

    def __init__(self, stack, kind, device, target):
        self.kind, self.device, self.target = kind, device, target
        self.driver = kind.split("-")[0]
        target.mkdir(exist_ok=True)
        stack.callback(self.detach)

    def make(self):
        """Makes it, without discards that a slow drive would take its time for."""
        quiet = {
            "ext4": ("-qF", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"),
            "xfs": ("-qfK",), "btrfs": ("-qfK",), "f2fs": ("-qft", "0"), "vfat": ("-I",),
        }
        self.uuid = str(uuid.uuid4())
        named = ("-U", self.uuid) if self.driver == "btrfs" else ()
        run(f"mkfs.{self.driver}", *quiet[self.driver], *named, self.device.path)
        if self.kind == "btrfs-subvolume":
            run("mount", "-t", "btrfs", "-o", "nodiscard", self.device.path, self.target)
            run("btrfs", "subvolume", "create", self.target / "sub")
            self.unmount()

    def mount(self):
        """Mounts it so that it does not discard by itself."""
        options = {"btrfs": "nodiscard", "btrfs-subvolume": "nodiscard,subvol=sub", "f2fs": "nodiscard"}.get(self.kind, "rw")
        run("mount", "-i", "-t", self.driver, "-o", options, self.device.path, self.target)

    def try_unmount(self, flags=0):
        """Returns 0, or the number of the error."""
        return 0 if LIBC.umount2(str(self.target).encode(), flags) == 0 else ctypes.get_errno()

    def unmount(self, limit=60, call=None):
        """Unmounts it, again every 5 ms while it is busy.

        Returns the refusals, for how long there were any, and how long the call took that succeeded, in seconds.
        """
        first = begun = time.monotonic()
        refusals = 0
        while error := (call or self.try_unmount)():
            if error != errno.EBUSY or time.monotonic() > first + limit:
                raise OSError(error, f"cannot unmount {self.target}: {os.strerror(error)}")
            refusals += 1
            time.sleep(RETRY)
            begun = time.monotonic()
        return refusals, begun - first if refusals else 0.0, time.monotonic() - begun

    def unmount_by_program(self):
        """Runs the program umount; returns 0, or the number of the error."""
        done = run("umount", "-i", self.target, check=False)
        return 0 if done.returncode == 0 else errno.EBUSY if "busy" in done.stderr else errno.EIO

    def refused(self):
        """Whether unmounting would be refused now. MNT_EXPIRE only marks what is unused, and a look at it unmarks it."""
        error = self.try_unmount(MNT_EXPIRE)
        os.stat(self.target)
        if error not in (errno.EAGAIN, errno.EBUSY):
            raise OSError(error, f"{self.target}: MNT_EXPIRE: {os.strerror(error)}")
        return error == errno.EBUSY

    def detach(self):
        """Unmounts it whatever uses it."""
        while self.try_unmount(MNT_DETACH) == 0:
            pass

    def alive(self):
        """Whether the kernel still has the superblock: an exclusive open fails, or sysfs has it."""
        if not os.path.exists(self.device.path):
            return False
        name = self.uuid if self.driver == "btrfs" else self.device.block()
        if self.driver != "vfat" and os.path.exists(f"/sys/fs/{self.driver}/{name}"):
            return True
        try:
            os.close(os.open(self.device.path, os.O_RDONLY | os.O_EXCL))
            return False
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return True

    def fill(self, files, size):
        """Writes files and deletes half of them, all of which is on the drive when it returns."""
        for left in self.target.iterdir():
            if left.name.startswith(("file-", "last")):
                left.unlink()
        for number in range(files):
            (self.target / f"file-{number}").write_bytes(bytes([number % 251 + 1]) * size)
        run("sync", "-f", self.target)
        for number in range(0, files, 2):
            (self.target / f"file-{number}").unlink()
        run("sync", "-f", self.target)

    def lacks(self, image, name, content):
        """Examines a copy of the drive; returns what is wrong with it: a dirty log, or a file that is not there or is another."""
        found = []
        digest = hashlib.sha256(content).digest()
        with contextlib.ExitStack() as stack:
            room = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=image.parent)))
            if self.driver == "ext4":
                if "needs_recovery" in run("dumpe2fs", "-h", image).stdout:
                    found.append("dirty log")
                run("debugfs", "-R", f"dump /{name} {room}/{name}", image)
            elif self.driver == "btrfs":
                shown = run("btrfs", "inspect-internal", "dump-super", image).stdout
                if re.search(r"^log_root\s+[1-9]", shown, re.M):
                    found.append("dirty log")
                run("btrfs", "restore", "--path-regex", f"^/(|sub(|/{name})|{name})$", image, room, check=False)
                if self.kind == "btrfs-subvolume":
                    room = room / "sub"
            else:
                if self.driver == "xfs" and "<CLEAN>" not in run("xfs_logprint", "-t", image, check=False).stdout:
                    found.append("dirty log")
                if self.driver == "vfat" and "Dirty bit is set" in run("fsck.vfat", "-n", image, check=False).stdout:
                    found.append("dirty bit")
                if self.driver == "f2fs" and "unmount" not in run("fsck.f2fs", "--dry-run", image, check=False).stdout:
                    found.append("dirty log")
                loop = run("losetup", "--find", "--show", "--read-only", image).stdout.strip()
                stack.callback(run, "losetup", "-d", loop)
                options = {"xfs": "ro,norecovery,nouuid", "f2fs": "ro,norecovery"}.get(self.driver, "ro")
                try:
                    run("mount", "-i", "-t", self.driver, "-o", options, loop, room)
                except RuntimeError as error:
                    return [*found, f"not mountable ({error})"]
                stack.callback(LIBC.umount2, str(room).encode(), 0)
            file = room / name
            try:
                if hashlib.sha256(file.read_bytes()).digest() != digest:
                    found.append("file differs")
            except FileNotFoundError:
                found.append("file missing")
            except OSError as error:
                found.append(f"file not readable ({error.strerror})")
        return found


class Service:
    """A service with private directories."""

    def __init__(self, stack, trimtab, directory, config):
        self.trimtab, self.directory = trimtab, directory
        directory.mkdir()
        self.config, self.log = directory / "config.toml", directory / "log"
        self.config.write_text(config)
        # Older programs do not know it, and are compared with newer ones.
        if run(trimtab, "daemon", "--config", self.config, "--check-config", check=False).returncode:
            self.config.write_text(config.replace(AT_ONCE, ""))
        command = [trimtab, "daemon", "--config", self.config, "--run", directory / "run", "--state", directory / "state"]
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                                          start_new_session=True, preexec_fn=lambda: LIBC.prctl(1, signal.SIGKILL))
        stack.callback(self.stop)
        if not until(30, lambda: self.child.poll() is not None or self.status() is not None, 0.05) or self.child.poll() is not None:
            fail(f"the service does not start: {self.log.read_text().strip()}")

    def status(self):
        """Returns its status document, or nothing if it does not answer."""
        done = run(self.trimtab, "status", "--json", "--run", self.directory / "run", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def stop(self):
        """Ends it; returns the seconds that this took."""
        begun = time.monotonic()
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(30)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait(60)
        return time.monotonic() - begun

    def processes(self):
        """Returns its process and all processes below it."""
        found, new = [], [self.child.pid]
        while new:
            found.extend(new)
            below = []
            for pid in new:
                with contextlib.suppress(OSError):
                    for task in Path(f"/proc/{pid}/task").glob("*/children"):
                        with contextlib.suppress(OSError):
                            below.extend(map(int, task.read_text().split()))
            new = below
        return found

    def trims(self):
        """Whether a thread of it, or of a process below it, is inside FITRIM."""
        # A process may end meanwhile.
        for pid in self.processes():
            with contextlib.suppress(OSError):
                for call in Path(f"/proc/{pid}/task").glob("*/syscall"):
                    with contextlib.suppress(OSError, IndexError, ValueError):
                        if int(call.read_text().split()[2], 16) == FITRIM:
                            return True
        return False

    def wait_for_trim(self, device=None, limit=90):
        """Waits until it is inside FITRIM; returns whether it got there.

        XFS returns from FITRIM before its discards end: with a device, four looks in a row at which it was busy also count.
        """
        looks = 0

        def trims():
            nonlocal looks
            looks = looks + 1 if device and device.busy() else 0
            return looks > 3 or self.trims()

        return until(limit, trims, 0.002)

    def warnings(self):
        """Returns the warnings and errors in its log, and how many of each there are."""
        counts = {}
        for line in self.log.read_text(errors="replace").splitlines():
            if re.search(r"\b(WARN|ERROR|warn|error)\b", line):
                said = re.sub(r"^\S+ ", "", line)
                said = re.sub(r"\d+(\.\d+)?", "N", said)
                counts[said] = counts.get(said, 0) + 1
        return counts


@contextlib.contextmanager
def other_mounts(directory):
    """Mounts and unmounts something else all the time, as a machine in use does."""
    directory.mkdir()
    over = threading.Event()

    def change():
        pause = 0.01
        while not over.wait(pause):
            LIBC.mount(b"other", str(directory).encode(), b"tmpfs", 0, None)
            over.wait(pause)
            LIBC.umount2(str(directory).encode(), MNT_DETACH)
            pause = 0.01 if pause > 2 else pause * 2

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def eager(target, max_age, kind="ext4", busy_share=1.0):
    """Returns a configuration that trims soon, and only what is mounted there: every minute what does not report its frees.

    Trims may hold a drive in use for `busy_share` of the time: by default always, which is 200 times as much as the service's default.
    """
    policy = "batched:1m" if kind in ("f2fs", "vfat") else "smart"
    return (f'[defaults]\npolicy = "none"\n[mount."{target}"]\npolicy = "{policy}"\nmax_busy_share = {busy_share}\n'
            f'max_age = "{max_age}"\n{AT_ONCE}')


def defaults():
    """Returns the default configuration, which leaves the file systems alone that are mounted now."""
    tables = ""
    for target in {unescape(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()}:
        tables += f'[mount."{target}"]\npolicy = "none"\n'
    return tables


@contextlib.contextmanager
def room(directory):
    """Makes a directory for a script's files, with a stack of what has to be undone, and removes it."""
    with contextlib.ExitStack() as stack:
        made = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-stress-", dir=directory)))
        yield stack, made


def table(rows):
    """Prints rows of cells in columns; numbers stand to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip(), flush=True)
