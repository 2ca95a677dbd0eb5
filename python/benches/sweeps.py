"""Measures sweeps on one and two processors, what the package costs over the program, and sweeps on Dask.

usage: make bench-python, or python sweeps.py TRIMTAB [--part NAME] [--cells N] [--rounds N] [--minutes N]

A round does both things that are compared. A round in which other processes used more than 5 % of the processors is
not counted but repeated, for --minutes. CPU seconds are of all rounds: other processes disturb them less than the time.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import distributed
import psutil
import pyarrow.parquet

import trimtab
from trimtab import _distributed

REQUESTS = 920_000
"""Requests of the trace, which become about a million events."""
OTHERS = 0.05
"""The share of the processors that other processes may use in a round that counts."""
SIMULATED = 10, 100
"""The workers of the simulated cluster, and the threads of each."""
PROFILES = ["ocz-agility-3", "nvme-tlc"]
POLICIES = ["none", "online", "batched:10s", "smart"]


class Usage(NamedTuple):
    """Seconds: of the clock, of all processors in use, and of this process and its descendants on them."""

    clock: float
    all: float
    own: float

    @staticmethod
    def now() -> Usage:
        ticks = [int(field) for field in pathlib.Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]
        idle = ticks[3] + ticks[4]
        own = 0.0
        here = psutil.Process()
        for process in [here, *here.children(recursive=True)]:
            try:
                taken = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            own += taken.user + taken.system + taken.children_user + taken.children_system
        return Usage(time.perf_counter(), (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK"), own)

    def since(self, before: Usage) -> Usage:
        return Usage(*(now - then for now, then in zip(self, before, strict=True)))

    def others(self) -> float:
        """Returns the share of the processors that other processes used."""
        return (self.all - self.own) / (self.clock * (os.cpu_count() or 1))


def measure(action: Callable[[], object]) -> Usage:
    before = Usage.now()
    action()
    return Usage.now().since(before)


def compare(options: argparse.Namespace, actions: dict[str, Callable[[], object]]) -> None:
    """Measures two things in turns, and prints the medians and the ratio of the first to the second."""
    quiet: list[list[Usage]] = []
    rounds: list[list[Usage]] = []
    end = time.monotonic() + options.minutes * 60
    while len(quiet) < options.rounds and time.monotonic() < end:
        taken = {name: measure(actions[name]) for name in list(actions)[:: -1 if len(rounds) % 2 else 1]}
        rounds.append([taken[name] for name in actions])
        if max(usage.others() for usage in rounds[-1]) <= OTHERS:
            quiet.append(rounds[-1])
    print(f"  {len(quiet)} of {len(rounds)} rounds were quiet")
    for what, of, these in ("time", Usage._fields.index("clock"), quiet), ("CPU", Usage._fields.index("own"), rounds):
        if these:
            ratios = sorted(one[of] / other[of] for one, other in these)
            for name, values in zip(actions, zip(*these, strict=True), strict=True):
                print(f"  {what}, {name}: {statistics.median(usage[of] for usage in values):.2f} s")
            median = statistics.median(ratios)
            print(f"  {what}, ratio: {median:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})", flush=True)


def make_trace(program: pathlib.Path, work: pathlib.Path) -> pathlib.Path:
    """Writes a trace of random requests to 2 GiB, with a pause now and then, and with synthetic frees."""
    draws = random.Random(1)
    lines, seconds = [], 0.0
    for _ in range(REQUESTS):
        seconds += 0.5 if draws.random() < 0.0005 else 0.00005
        operation = "R" if draws.random() < 0.3 else "W"
        offset, length = draws.randrange(1 << 18) * 8192, draws.choice([4096, 8192, 65536])
        lines.append(f"0,{operation},{min(offset, (1 << 31) - length)},{length},{int(seconds * 1e6)}")
    plain, trace = work / "requests.csv", work / "trace.parquet"
    plain.write_text("\n".join(lines) + "\n")
    run([program, "trace", "synth", plain, trace, "--format", "alibaba", "--share", "0.35", "--life", "20s"])
    print(f"trace: {pyarrow.parquet.read_metadata(trace).num_rows} events", flush=True)
    return trace


def run(command: list[object], processors: set[int] | None = None) -> int:
    """Runs a program, on these processors; returns its largest memory in MiB."""
    with tempfile.TemporaryFile() as output:
        prepare = None if processors is None else lambda: os.sched_setaffinity(0, processors)
        child = subprocess.Popen([str(word) for word in command], preexec_fn=prepare, stdout=output, stderr=output)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        if child.returncode != 0:
            sys.exit(output.read().decode())
    return used.ru_maxrss // 1024


def grid(trace: pathlib.Path, cells: int) -> dict[str, list[Any]]:
    """A grid of so many cells, a multiple of eight."""
    seeds = list(range(1, cells // (len(PROFILES) * len(POLICIES)) + 1))
    return {"traces": [str(trace)], "profiles": PROFILES, "policies": POLICIES, "seeds": seeds}


def fresh(work: pathlib.Path) -> pathlib.Path:
    """Returns an empty directory."""
    return pathlib.Path(tempfile.mkdtemp(dir=work))


def sweep_part(options: argparse.Namespace, work: pathlib.Path) -> None:
    trace = make_trace(options.program, work)
    first, second = sorted(os.sched_getaffinity(0))[:2]
    memory: dict[tuple[int, int], int] = {}

    def sweep(processors: set[int], cells: int) -> None:
        options_of = {"trace": "traces", "profile": "profiles", "policy": "policies", "seed": "seeds"}
        values = grid(trace, cells)
        words = [word for name, key in options_of.items() for word in (f"--{name}", ",".join(map(str, values[key])))]
        used = run([options.program, "sweep", "-o", fresh(work), *words], processors)
        memory[len(processors), cells] = max(used, memory.get((len(processors), cells), 0))

    print(f"sweep, {options.cells} cells:")
    sweep({first, second}, options.cells // 2 // 8 * 8)
    compare(
        options,
        {
            "one processor": lambda: sweep({first}, options.cells),
            "two processors": lambda: sweep({first, second}, options.cells),
        },
    )
    for (processors, cells), used in sorted(memory.items()):
        print(f"  {processors} processors, {cells} cells: {used} MiB at most")


def simulate_part(options: argparse.Namespace, work: pathlib.Path) -> None:
    trace = make_trace(options.program, work)

    def program() -> None:
        policies = ",".join(POLICIES)
        run([options.program, "sim", trace, "--profile", "nvme-tlc", "--policy", policies, "--json", fresh(work) / "it"])

    def package() -> None:
        (fresh(work) / "it").write_text(trimtab.simulate(trace, "nvme-tlc", POLICIES).to_json())

    print("simulate:")
    compare(options, {"Python": package, "command line": program})


def cluster(work: pathlib.Path, workers: int, threads: int = 1) -> distributed.LocalCluster:
    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        processes=True,
        memory_limit=0,
        dashboard_address=None,
        local_directory=str(fresh(work)),
    )


def confine(processors: set[int]) -> None:
    """Confines this process and its descendants, with all their threads, to these processors."""
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        for thread in process.threads():
            os.sched_setaffinity(thread.id, processors)


def dask_part(options: argparse.Namespace, work: pathlib.Path) -> None:
    """One worker on one processor, and two on two: scheduler and client share the processors with the workers."""
    trace = make_trace(options.program, work)
    processors = sorted(os.sched_getaffinity(0))

    def sweep(client: distributed.Client, workers: int) -> None:
        confine(set(processors[:workers]))
        trimtab.sweep(grid(trace, options.cells), fresh(work), client=client)

    print(f"Dask, {options.cells} cells:")
    with cluster(work, 1) as one, cluster(work, 2) as two:
        with distributed.Client(one) as first, distributed.Client(two) as second:
            compare(options, {"one worker": lambda: sweep(first, 1), "two workers": lambda: sweep(second, 2)})
    confine(set(processors))


def thousand_part(options: argparse.Namespace, work: pathlib.Path) -> None:
    """A thousand threads of worker processes that wait in place of simulating.

    The processor time of this process, the scheduler and the client, limits how many cells a second there can be.
    """
    workers, threads = SIMULATED
    cells = 4 * workers * threads
    plan = {"workloads": ["uniform"], "blocks": 16, "pages-per-block": 16, "seeds": list(range(cells))}
    print(f"{workers * threads} threads of {workers} workers that wait, {cells} cells:")
    compute = _distributed.compute
    with cluster(work, workers, threads) as simulated, distributed.Client(simulated) as client:
        for wait in 0, 20:

            def waiting(task: str, trace: str | None, path: str | None, seconds: int = wait) -> bytes | None:
                time.sleep(seconds)
                return compute(task, trace, path)

            used = time.process_time()
            _distributed.compute = waiting
            try:
                taken = measure(lambda: trimtab.sweep(plan, fresh(work), client=client)).clock
            finally:
                _distributed.compute = compute
            each = (time.process_time() - used) / cells
            linear = cells * wait / (workers * threads) / taken
            print(f"  cells of {wait} s: {taken:.1f} s, {linear:.2f} of linear")
            print(f"    scheduler and client: {each * 1e3:.2f} ms a cell, {1 / each:.0f} cells/s at most", flush=True)


PARTS = {"sweep": sweep_part, "simulate": simulate_part, "dask": dask_part, "thousand": thousand_part}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--part", choices=PARTS, help="only this part")
    parser.add_argument("--cells", type=int, default=40, help="cells of each sweep, a multiple of 8")
    parser.add_argument("--rounds", type=int, default=5, help="quiet rounds to take")
    parser.add_argument("--minutes", type=float, default=20, help="for each part, to wait for them")
    options = parser.parse_args()
    options.program = options.program.resolve()
    for name, part in PARTS.items():
        if options.part in (None, name):
            with tempfile.TemporaryDirectory() as work:
                part(options, pathlib.Path(work))


if __name__ == "__main__":
    main()
