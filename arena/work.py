"""A workload for a trace of the arena, in a mounted file system.

usage: work.py WORKLOAD DIR SEED

Each workload repeats its rounds until it has written twice the size of the file system or a minute
and a half is over. Between them are the pauses that people, timers and other machines make, shorter than in
real life: `trimtab sim --think-scale` makes them longer or leaves them out. Contents are the same bytes
everywhere: a block trace holds none.
"""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time

KIB, MIB = 1 << 10, 1 << 20
DATA = random.Random(0).randbytes(MIB)
SECONDS = 90
VOLUMES = 2


class Work:
    """A directory to work in, and what the workloads do there."""

    def __init__(self, root, seed):
        self.root = root
        self.random = random.Random(seed)
        self.end = time.monotonic() + SECONDS
        self.left = VOLUMES * total(root)

    def goes_on(self):
        """True until enough is written or the time is over."""
        return self.left > 0 and time.monotonic() < self.end

    def path(self, name):
        return os.path.join(self.root, name)

    def pause(self, mean):
        """Waits for `mean` seconds on average, with the spread of independent arrivals."""
        time.sleep(min(self.random.expovariate(1 / mean), 4 * mean))

    def size(self, median, spread, most):
        """A file size: log-normal."""
        return min(int(median * self.random.lognormvariate(0, spread)) + 1, most)

    def write(self, name, size, sync=False, append=False):
        """Writes a file of `size` bytes."""
        self.left -= size
        with open(self.path(name), "ab" if append else "wb", buffering=0) as file:
            while size > 0:
                size -= file.write(DATA[:size])
            if sync:
                os.fsync(file.fileno())

    def read(self, name):
        """Reads a file from the drive, not from memory, if it is clean; returns its size."""
        with open(self.path(name), "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            size = 0
            while part := file.read(128 * KIB):
                size += len(part)
            return size

    def remove(self, name):
        os.remove(self.path(name))

    def free_share(self):
        """The share of the file system that is free."""
        space = os.statvfs(self.root)
        return space.f_bavail / space.f_blocks

    def fill(self, name, share):
        """Writes files that stay until `share` of the file system is free."""
        number = 0
        while self.free_share() > share:
            self.write(f"{name}{number}", self.size(MIB, 1, 8 * MIB))
            number += 1
        os.sync()
        self.left = VOLUMES * total(self.root)


def total(root):
    """The size of a file system."""
    space = os.statvfs(root)
    return space.f_blocks * space.f_frsize


def packages(work):
    """Package updates: an archive is fetched and unpacked over the old version, file by file with fsync."""
    work.fill("home", 0.55)
    installed = {}
    while work.goes_on():
        package = work.random.randrange(12)
        os.makedirs(work.path(f"p{package}"), exist_ok=True)
        sizes = [work.size(16 * KIB, 1.5, 4 * MIB) for _ in range(work.random.randrange(40, 160))]
        work.write("archive", sum(sizes) // 3, sync=True)
        work.pause(0.12)
        work.read("archive")
        for number, size in enumerate(sizes):
            work.write(f"p{package}/{number}.new", size)
        for number in range(len(sizes)):
            with open(work.path(f"p{package}/{number}.new"), "rb") as file:
                os.fsync(file.fileno())
            os.rename(work.path(f"p{package}/{number}.new"), work.path(f"p{package}/{number}"))
        for number in range(len(sizes), installed.get(package, 0)):
            work.remove(f"p{package}/{number}")
        installed[package] = len(sizes)
        work.write("status", 2 * MIB, sync=True)
        work.remove("archive")
        os.sync()
        work.pause(0.6)


def builds(work):
    """Source builds: unpack, compile with temporary files, link, read the program, delete all."""
    work.fill("home", 0.5)
    build = 0
    while work.goes_on():
        tree = f"build{build}"
        os.makedirs(work.path(tree))
        sources = work.random.randrange(300, 700)
        for number in range(sources):
            work.write(f"{tree}/{number}.c", work.size(12 * KIB, 1, MIB))
        os.sync()
        work.pause(0.2)
        for number in range(sources):
            work.read(f"{tree}/{number}.c")
            work.write(f"{tree}/{number}.s", work.size(40 * KIB, 1, 2 * MIB))
            work.write(f"{tree}/{number}.o", work.size(24 * KIB, 1, MIB))
            work.remove(f"{tree}/{number}.s")
            if number % 100 == 99:
                os.sync()
                work.pause(0.08)
        work.write(f"{tree}/program", work.random.randrange(8, 24) * MIB, sync=True)
        work.read(f"{tree}/program")
        work.pause(0.4)
        shutil.rmtree(work.path(tree))
        os.sync()
        build += 1
        # Sometimes the next build follows at once.
        if work.random.random() < 0.6:
            work.pause(0.8)


def database(work):
    """SQLite: rows are inserted, updated and deleted in transactions; now and then it compacts itself."""
    work.fill("home", 0.6)
    base = sqlite3.connect(work.path("base.db"), isolation_level=None)
    base.execute("pragma journal_mode = delete")
    base.execute("pragma cache_size = -4096")
    base.execute("create table rows (id integer primary key, key integer, body blob)")
    base.execute("create index keys on rows (key)")
    count = 0
    while work.goes_on():
        for _ in range(work.random.randrange(4, 10)):
            base.execute("begin")
            for _ in range(400):
                body = DATA[: work.size(4 * KIB, 0.7, 64 * KIB)]
                base.execute("insert into rows (key, body) values (?, ?)", (work.random.randrange(1 << 30), body))
                count += 1
            for _ in range(100):
                base.execute(
                    "update rows set body = ? where id = ?",
                    (DATA[: work.size(6 * KIB, 0.7, 64 * KIB)], work.random.randrange(1, count)),
                )
            base.execute("commit")
            work.pause(0.02)
        low = work.random.randrange(1 << 29)
        base.execute("delete from rows where key between ? and ?", (low, low + (1 << 29)))
        work.pause(0.2)
        base.execute("vacuum")
        work.left -= 2 * os.path.getsize(work.path("base.db"))
        with open(work.path("base.db"), "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        base.execute("select count(*), sum(length(body)) from rows").fetchall()
        work.pause(0.6)
    base.close()


def fragment(work):
    """Fill with small files, delete every second one, write one large file into the holes, delete it."""
    work.fill("home", 0.6)
    while work.goes_on():
        number = 0
        while work.free_share() > 0.15:
            work.write(f"small{number}", work.random.choice([8, 16, 32, 64, 128]) * KIB)
            number += 1
        os.sync()
        work.pause(0.2)
        for odd in (1, 0):
            for place in range(odd, number, 2):
                work.remove(f"small{place}")
            os.sync()
            # The large write follows at once, or after a pause.
            if work.random.random() < 0.5:
                work.pause(0.6)
            work.write("large", int(work.free_share() * 0.7 * total(work.root)), sync=True)
            work.read("large")
            work.remove("large")
            os.sync()
        work.pause(0.4)


def mail(work):
    """A mail server: small files are created, read, appended to and deleted, most with fsync."""
    work.fill("home", 0.55)
    box, number = [], 0
    while work.goes_on():
        for _ in range(work.random.randrange(100, 500)):
            action = work.random.random()
            full = work.free_share() < 0.12
            if (action < 0.4 or not box) and not full:
                work.write(f"mail{number}", work.size(12 * KIB, 1.4, 6 * MIB), sync=work.random.random() < 0.3)
                box.append(number)
                number += 1
            elif action < 0.6 and box and not full:
                work.read(f"mail{work.random.choice(box)}")
            elif action < 0.7 and box and not full:
                work.write(f"mail{work.random.choice(box)}", work.size(4 * KIB, 1, 256 * KIB), append=True)
            elif box:
                place = work.random.randrange(len(box))
                box[place], box[-1] = box[-1], box[place]
                work.remove(f"mail{box.pop()}")
        if full:
            # Old mail is thrown away.
            work.random.shuffle(box)
            while work.free_share() < 0.3 and box:
                work.remove(f"mail{box.pop()}")
                if len(box) % 64 == 0:
                    os.sync()
        os.sync()
        work.pause(0.24)


def cache(work):
    """A browser's cache: pages bring files of all sizes, some are read again, the oldest are dropped."""
    work.fill("home", 0.5)
    entries, number = {}, 0
    limit = int(0.35 * total(work.root))
    while work.goes_on():
        for _ in range(work.random.randrange(30, 250)):
            if entries and work.random.random() < 0.3:
                name = work.random.choice(list(entries))
                entries[name] = entries.pop(name)
                work.read(name)
            else:
                name, size = f"entry{number}", work.size(24 * KIB, 1.6, 8 * MIB)
                work.write(name, size)
                entries[name] = size
                number += 1
        work.write("index.new", 512 * KIB, sync=True)
        os.rename(work.path("index.new"), work.path("index"))
        if sum(entries.values()) > limit:
            while sum(entries.values()) > 0.8 * limit:
                name = next(iter(entries))
                del entries[name]
                work.remove(name)
        os.sync()
        work.pause(0.32)


def logs(work):
    """Logs of several services: appended to with fsync, rotated, compressed, and the oldest deleted."""
    work.fill("home", 0.5)
    kept = 6
    while work.goes_on():
        for _ in range(work.random.randrange(20, 60)):
            service = work.random.randrange(4)
            work.write(f"log{service}", work.size(128 * KIB, 1, 2 * MIB), sync=work.random.random() < 0.5, append=True)
        work.pause(0.16)
        for service in range(4):
            name = f"log{service}"
            if not os.path.exists(work.path(name)) or os.path.getsize(work.path(name)) < 6 * MIB:
                continue
            for age in range(kept, 0, -1):
                old = work.path(f"{name}.{age}.gz")
                if age == kept and os.path.exists(old):
                    os.remove(old)
                elif os.path.exists(old):
                    os.rename(old, work.path(f"{name}.{age + 1}.gz"))
            os.rename(work.path(name), work.path(f"{name}.raw"))
            work.write(f"{name}.1.gz", work.read(f"{name}.raw") // 4, sync=True)
            work.remove(f"{name}.raw")
        os.sync()
        work.pause(0.32)


def images(work):
    """Images of virtual machines: copied, written to at random, trimmed by their guests, thrown away."""
    work.fill("home", 0.75)
    size = int(0.18 * total(work.root)) // MIB * MIB
    machines, number = [], 0
    while work.goes_on():
        if len(machines) < 3:
            name = f"machine{number}"
            work.write(name, size, sync=True)
            machines.append(name)
            number += 1
        name = work.random.choice(machines)
        with open(work.path(name), "r+b", buffering=0) as file:
            for write in range(work.random.randrange(300, 1200)):
                length = work.random.choice([4, 4, 4, 16, 64, 256]) * KIB
                start = work.random.randrange((size - length) // 4096) * 4096
                work.left -= os.pwrite(file.fileno(), DATA[:length], start)
                if write % 50 == 49:
                    os.fsync(file.fileno())
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            for _ in range(200):
                os.pread(file.fileno(), 16 * KIB, work.random.randrange(size // 4096) * 4096)
        work.pause(0.2)
        # The guest trims a part of its disk.
        start = work.random.randrange(size // MIB) * MIB
        length = min(8 * MIB, size - start)
        punch(work.path(name), start, length)
        os.sync()
        work.pause(0.32)
        if len(machines) == 3 and work.random.random() < 0.35:
            work.remove(machines.pop(work.random.randrange(3)))
            os.sync()
            if work.random.random() < 0.5:
                work.pause(0.4)


def keyvalue(work):
    """A log-structured key-value store: tables are flushed, then merged into larger ones, and deleted."""
    work.fill("home", 0.55)
    levels, number = [[], [], []], 0
    limits = [4, 6, 3]

    def table(level, size):
        nonlocal number
        name = f"table{number}"
        number += 1
        work.write(name, size, sync=True)
        levels[level].append((name, size))

    while work.goes_on():
        for _ in range(work.random.randrange(10, 40)):
            work.write("wal", work.size(24 * KIB, 0.8, MIB), sync=work.random.random() < 0.2, append=True)
        table(0, work.size(MIB, 0.4, 2 * MIB))
        work.remove("wal")
        for level, limit in enumerate(limits):
            if len(levels[level]) < limit:
                continue
            merged, levels[level] = levels[level], []
            for name, _ in merged:
                work.read(name)
            # A part of the keys was overwritten; of the last level, the rest expires.
            size = int(sum(size for _, size in merged) * work.random.uniform(0.5, 0.9))
            if level + 1 < len(levels):
                table(level + 1, size)
            for name, _ in merged:
                work.remove(name)
        os.sync()
        work.pause(0.16)


def containers(work):
    """Containers: layers are pulled as archives and unpacked, started, written to, and removed."""
    work.fill("home", 0.5)
    layers, number = [], 0
    while work.goes_on():
        name = f"layer{number}"
        number += 1
        sizes = [work.size(20 * KIB, 1.6, 4 * MIB) for _ in range(work.random.randrange(100, 400))]
        work.write(name + ".tar", sum(sizes) // 2, sync=True)
        work.read(name + ".tar")
        os.makedirs(work.path(name))
        for file, size in enumerate(sizes):
            work.write(f"{name}/{file}", size)
        os.sync()
        work.remove(name + ".tar")
        layers.append(name)
        work.pause(0.2)
        for _ in range(work.random.randrange(1, 5)):
            running = f"{name}/run"
            for _ in range(work.random.randrange(10, 60)):
                work.write(running, work.size(16 * KIB, 1, MIB), append=True)
            os.sync()
            work.pause(0.08)
            work.remove(running)
        while work.free_share() < 0.2 or len(layers) > 6:
            shutil.rmtree(work.path(layers.pop(work.random.randrange(len(layers)))))
        os.sync()
        work.pause(0.4)


def checkpoints(work):
    """Checkpoints of a long computation: written whole with fsync, renamed, and only the newest kept."""
    work.fill("home", 0.55)
    size, kept, number = int(0.08 * total(work.root)), [], 0
    while work.goes_on():
        for _ in range(work.random.randrange(2, 8)):
            work.write("metrics", work.size(32 * KIB, 0.5, MIB), append=True)
        work.write("new", int(size * work.random.uniform(0.9, 1.1)), sync=True)
        os.rename(work.path("new"), work.path(f"checkpoint{number}"))
        kept.append(f"checkpoint{number}")
        number += 1
        while len(kept) > 3:
            work.remove(kept.pop(0))
        os.sync()
        work.pause(0.6)


def cameras(work):
    """Cameras: several streams are appended to side by side in segments, and the oldest segments deleted."""
    work.fill("home", 0.3)
    segments, number, open_segments = [], 0, {}
    while work.goes_on():
        for camera in range(4):
            name = open_segments.get(camera)
            if name is None or os.path.getsize(work.path(name)) > 3 * MIB:
                name = open_segments[camera] = f"camera{camera}.{number}"
                number += 1
                segments.append(name)
            work.write(name, work.size(192 * KIB, 0.4, MIB), append=True)
        if number % 8 == 0:
            os.sync()
        while work.free_share() < 0.12:
            work.remove(segments.pop(0))
        work.pause(0.04)


def punch(path, start, length):
    """Gives up a range of a file."""
    command = ["fallocate", "--punch-hole", "--offset", str(start), "--length", str(length), path]
    subprocess.run(command, check=True)


WORKLOADS = {
    "packages": packages,
    "builds": builds,
    "database": database,
    "fragment": fragment,
    "mail": mail,
    "cache": cache,
    "logs": logs,
    "images": images,
    "keyvalue": keyvalue,
    "containers": containers,
    "checkpoints": checkpoints,
    "cameras": cameras,
}


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in WORKLOADS:
        sys.exit(f"usage: work.py {'|'.join(WORKLOADS)} DIR SEED")
    WORKLOADS[sys.argv[1]](Work(sys.argv[2], int(sys.argv[3])))


if __name__ == "__main__":
    main()
