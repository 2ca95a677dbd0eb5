"""Sweeps whose cells are computed by the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import os
import pathlib
import uuid
from typing import Any, NamedTuple

import distributed
from distributed.client import as_completed

from ._trimtab import Error, Plan, Table, __version__, run_cell, trace_hash

IN_FLIGHT = 4
"""Cells that are submitted at a time, for each thread of the workers."""


ATTEMPTS = 3
"""How often a cell is given to workers that lack its trace although it was sent to them."""


class Missing(NamedTuple):
    """A cell without results: its place in the plan, its key, and its trace with a file that has it."""

    place: int
    key: str
    trace: str | None
    path: str | None


class TraceFile(distributed.WorkerPlugin):
    """Gives a trace to every worker, also to those that join during the sweep."""

    def __init__(self, trace: str, path: str) -> None:
        # Another sweep on the cluster may give the same trace, and take its plugin away first.
        self.name = f"trimtab-trace-{trace}-{uuid.uuid4().hex}"
        self.trace = trace
        self.content = pathlib.Path(path).read_bytes()

    async def setup(self, worker: Any) -> None:
        """Writes the trace to the worker's directory."""
        await asyncio.to_thread(self.write, received(worker, self.trace))

    def write(self, path: pathlib.Path) -> None:
        """Writes the trace, unless it is there."""
        if not path.exists():
            # Another sweep may give the same trace at the same time.
            part = path.with_suffix(f".{uuid.uuid4().hex}.part")
            part.write_bytes(self.content)
            part.replace(path)


def received(worker: Any, trace: str) -> pathlib.Path:
    """Returns where a worker keeps a trace that it was given."""
    return pathlib.Path(worker.local_directory) / f"trimtab-{trace}"


def fingerprint(path: str) -> tuple[int, ...] | None:
    """Returns what changes with a file that is written or replaced; none if there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def has_content(trace: str, path: str) -> bool:
    """Returns true if the file is this trace; false if it is another one, or can't be read."""
    try:
        return os.path.isfile(path) and trace_hash(path) == trace
    except (Error, OSError):
        return False


def place(worker: Any, trace: str, path: str) -> str | None:
    """Returns where a worker has a trace: its client's file, if it sees that with the same content, or its own copy."""
    known: dict[str, tuple[str, tuple[int, ...] | None]] = worker.__dict__.setdefault("trimtab_traces", {})
    entry = known.get(trace)
    if entry is not None and fingerprint(entry[0]) == entry[1]:
        return entry[0]
    known.pop(trace, None)
    for candidate in (str(received(worker, trace)), path):
        before = fingerprint(candidate)
        if has_content(trace, candidate) and fingerprint(candidate) == before:
            known[trace] = (candidate, before)
            return candidate
    return None


def version() -> str:
    """Returns the version of a worker."""
    return __version__


async def lacks(trace: str, path: str, dask_worker: Any) -> bool:
    """Returns true if a worker has neither the file nor a copy of a trace."""
    # Reading the file takes a while, in which the worker has to answer its scheduler.
    return await asyncio.to_thread(place, dask_worker, trace, path) is None


def compute(task: str, trace: str | None, path: str | None) -> bytes | None:
    """Computes a cell on a worker; none if it does not have the trace."""
    if trace is None or path is None:
        return run_cell(task)
    here = place(distributed.get_worker(), trace, path)
    return None if here is None else run_cell(task, here, path)


def run(plan: Plan, client: distributed.Client | str) -> Table:
    """Computes the cells of a plan that have no results yet on the workers of a cluster."""
    if isinstance(client, str):
        with distributed.Client(client) as connected:
            return run(plan, connected)
    for worker, other in client.run(version).items():
        if other != __version__:
            raise Error(f"version mismatch: this is trimtab {__version__}, the worker {worker} has {other}")
    missing = [
        Missing(place, key, trace, None if path is None else os.fspath(path))
        for place, key, trace, path in plan.missing()
    ]
    provided: dict[str, str] = {}
    for trace, path in {(it.trace, it.path) for it in missing if it.trace is not None and it.path is not None}:
        if any(client.run(lacks, trace, path).values()):
            provide(client, trace, path, provided)
    left = iter(missing)
    attempts: dict[str, int] = {}
    cells: dict[Any, Missing] = {}
    running = as_completed()
    lost: list[str] = []

    def submit(cell: Missing) -> None:
        future = client.submit(compute, plan.task(cell.place), cell.trace, cell.path, pure=False)
        cells[future] = cell
        running.add(future)

    def fill() -> None:
        # Workers may join and leave meanwhile.
        most = max(1, sum(client.nthreads().values())) * IN_FLIGHT
        while len(cells) < most and (cell := next(left, None)) is not None:
            submit(cell)

    try:
        fill()
        for future in running:
            cell = cells.pop(future)
            try:
                result: bytes | None = future.result()
            except distributed.KilledWorker as error:
                lost.append(f"{cell.key}: it ended several workers ({error})")
                result = b""
            if result:
                plan.store(cell.key, result)
            elif result is None and cell.trace is not None and cell.path is not None:
                # A worker that joined after the others had been asked.
                provide(client, cell.trace, cell.path, provided)
                attempts[cell.key] = attempts.get(cell.key, 0) + 1
                if attempts[cell.key] < ATTEMPTS:
                    submit(cell)
                else:
                    lost.append(f"{cell.key}: a worker could not keep the trace {cell.path}")
            fill()
    finally:
        client.cancel(list(cells))
        for name in provided.values():
            client.unregister_worker_plugin(name)
    table = plan.table()
    if lost:
        raise Error(f"{len(lost)} cells have no results; the first: {lost[0]}")
    return table


def provide(client: distributed.Client, trace: str, path: str, provided: dict[str, str]) -> None:
    """Gives a trace to the workers, once; keeps the name of its plugin in ``provided``."""
    if trace not in provided:
        plugin = TraceFile(trace, path)
        client.register_plugin(plugin)
        provided[trace] = plugin.name
