"""Measures sweeps on one and two processors, the price of the package, and sweeps on Dask.

usage: make bench-python, or python/bench.py TRIMTAB [--cells N] [--rounds N] [--events N] [--part NAME]

Every part alternates what it compares, and prints the median of each and of the ratios of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import distributed

import trimtab
from trimtab import _distributed, _trimtab

WORKERS = 1000
"""The workers of the simulated cluster."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--cells", type=int, default=40, help="cells of each sweep")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=1_000_000, help="events of the trace")
    parser.add_argument("--part", choices=PARTS, help="only this part")
    options = parser.parse_args()
    options.program = options.program.resolve()
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        trace = make_trace(options.program, work, options.events)
        for name, part in PARTS.items():
            if options.part in (None, name):
                part(options, work, trace)


def make_trace(program: pathlib.Path, work: pathlib.Path, events: int) -> pathlib.Path:
    """Writes a trace of random requests to 2 GiB with a pause now and then, and with synthetic frees."""
    draws = random.Random(1)
    lines, seconds = [], 0.0
    # Three requests of four become one event, the fourth begins a file that is freed.
    for _ in range(events * 4 // 5):
        seconds += 0.5 if draws.random() < 0.0005 else 0.00005
        operation = "R" if draws.random() < 0.3 else "W"
        offset, length = draws.randrange(1 << 18) * 8192, draws.choice([4096, 8192, 65536])
        lines.append(f"0,{operation},{min(offset, (1 << 31) - length)},{length},{int(seconds * 1e6)}")
    plain, trace = work / "requests.csv", work / "trace.parquet"
    plain.write_text("\n".join(lines) + "\n")
    run(program, "trace", "synth", plain, trace, "--format", "alibaba", "--share", "0.35", "--life", "20s")
    print(f"trace: {len(trimtab_events(trace))} events", flush=True)
    return trace


def trimtab_events(trace: pathlib.Path) -> range:
    """Returns a range as long as the trace."""
    import pyarrow.parquet

    return range(pyarrow.parquet.read_metadata(trace).num_rows)


def run(program: pathlib.Path, *arguments: object, processors: set[int] | None = None) -> None:
    """Runs the program, on these processors."""
    prepare = None if processors is None else lambda: os.sched_setaffinity(0, processors)
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, preexec_fn=prepare, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")


def seconds_of(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def compare(options: argparse.Namespace, names: tuple[str, str], actions: tuple[Callable[[], object], ...]) -> float:
    """Times two actions in turns; returns the median of the first's time over the second's."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(options.rounds):
        for action, taken in zip(actions, times, strict=True):
            taken.append(seconds_of(action))
    ratio = statistics.median(first / second for first, second in zip(*times, strict=True))
    for name, taken in zip(names, times, strict=True):
        print(f"  {name}: {statistics.median(taken):.2f} s")
    return ratio


def grid(options: argparse.Namespace, trace: pathlib.Path) -> dict[str, object]:
    """A grid with that many cells of the trace."""
    policies = ["none", "online", "batched:10s", "smart"]
    seeds = list(range(1, max(1, options.cells // (2 * len(policies))) + 1))
    return {
        "traces": [str(trace)],
        "profiles": ["ocz-agility-3", "nvme-tlc"],
        "policies": policies,
        "seeds": seeds,
    }


def fresh(work: pathlib.Path) -> pathlib.Path:
    """Returns an empty directory."""
    return pathlib.Path(tempfile.mkdtemp(dir=work))


def sweep_part(options: argparse.Namespace, work: pathlib.Path, trace: pathlib.Path) -> None:
    """The sweep of the program, on one and on two processors."""
    plan = grid(options, trace)
    arguments = [
        *("--trace", trace, "--profile", ",".join(plan["profiles"]), "--policy", ",".join(plan["policies"])),  # type: ignore[arg-type]
        *("--seed", ",".join(map(str, plan["seeds"]))),  # type: ignore[call-overload]
    ]
    first, second = sorted(os.sched_getaffinity(0))[:2]

    def sweep(processors: set[int]) -> None:
        run(options.program, "sweep", "-o", fresh(work), *arguments, processors=processors)

    print(f"sweep, {2 * len(plan['policies']) * len(plan['seeds'])} cells:")  # type: ignore[arg-type]
    one, both = (lambda: sweep({first})), (lambda: sweep({first, second}))
    ratio = compare(options, ("one processor", "two processors"), (one, both))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"  two processors are {ratio:.2f} times as fast; {peak:.0f} MiB at most")


def simulate_part(options: argparse.Namespace, work: pathlib.Path, trace: pathlib.Path) -> None:
    """`simulate` and the program's `sim`, with the same work."""
    policies = ["none", "online", "smart"]

    def program() -> None:
        run(
            options.program,
            *("sim", trace, "--profile", "nvme-tlc", "--policy", ",".join(policies)),
            *("--json", fresh(work) / "out.json"),
        )

    def package() -> None:
        (fresh(work) / "out.json").write_text(trimtab.simulate(trace, "nvme-tlc", policies).to_json())

    print("simulate:")
    ratio = compare(options, ("Python", "command line"), (package, program))
    print(f"  Python takes {ratio:.3f} times as long")


def dask_part(options: argparse.Namespace, work: pathlib.Path, trace: pathlib.Path) -> None:
    """Sweeps on clusters of one and of two worker processes."""

    def cluster(workers: int) -> distributed.LocalCluster:
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            local_directory=str(fresh(work)),
        )

    print("Dask, the same cells:")
    with cluster(1) as one, cluster(2) as two, distributed.Client(one) as first, distributed.Client(two) as second:
        plan = grid(options, trace)

        def sweep(client: distributed.Client) -> None:
            trimtab.sweep(plan, fresh(work), client=client)

        ratio = compare(options, ("one worker", "two workers"), (lambda: sweep(first), lambda: sweep(second)))
    print(f"  two workers are {ratio:.2f} times as fast: {ratio / 2:.2f} of linear")


def thousand_part(options: argparse.Namespace, work: pathlib.Path, trace: pathlib.Path) -> None:
    """A thousand workers that wait in place of a simulation, in one process: what the scheduler and the client bear."""
    plan = {"workloads": ["uniform"], "blocks": [64], "policies": ["none"], "seeds": list(range(1, 4 * WORKERS + 1))}
    computed = fresh(work)
    trimtab.sweep(plan, computed)
    # The workers find these in the module, since Dask sends the function to each of them.
    results = {
        task: (computed / "cells" / f"{key}.json").read_bytes()
        for key, task, _, _ in _trimtab.Plan(json.dumps(plan), str(fresh(work))).missing()
    }
    setattr(_distributed, "bench_results", results)
    print(f"{WORKERS} workers that wait, {len(results)} cells:")
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=WORKERS,
        processes=False,
        dashboard_address=None,
        local_directory=str(fresh(work)),
    ) as cluster, distributed.Client(cluster) as client:
        original = _distributed.compute
        for wait in 0, 10, 60:
            setattr(_distributed, "bench_wait", wait)
            _distributed.compute = stored
            try:
                taken = seconds_of(lambda: trimtab.sweep(plan, fresh(work), client=client))
            finally:
                _distributed.compute = original
            ideal, rate = len(results) * wait / WORKERS, len(results) / taken
            print(f"  cells of {wait} s: {taken:.1f} s, {ideal / taken:.2f} of linear, {rate:.0f} cells/s", flush=True)


def stored(task: str, trace: str | None, path: str | None) -> bytes | None:
    """Waits, and returns the result that was computed before."""
    time.sleep(getattr(_distributed, "bench_wait"))
    result: bytes = getattr(_distributed, "bench_results")[task]
    return result


PARTS = {"sweep": sweep_part, "simulate": simulate_part, "dask": dask_part, "thousand": thousand_part}

if __name__ == "__main__":
    main()
