"""Sweeps whose cells are computed by the workers of a Dask cluster."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import distributed
from distributed.client import as_completed

from ._trimtab import Error, Plan, Table, __version__, run_cell, trace_hash

IN_FLIGHT = 4
"""Cells that are submitted at a time, for each thread of the workers."""


class TraceFile(distributed.WorkerPlugin):
    """Gives a trace to every worker, also to those that join during the sweep."""

    def __init__(self, trace: str, path: str) -> None:
        self.name = plugin_name(trace)
        self.trace = trace
        self.content = pathlib.Path(path).read_bytes()

    def setup(self, worker: Any) -> None:
        """Writes the trace to the worker's directory."""
        path = received(worker, self.trace)
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_bytes(self.content)
            part.rename(path)


def plugin_name(trace: str) -> str:
    """Returns the name under which a cluster knows the plugin that gives a trace to workers."""
    return f"trimtab-trace-{trace}"


def received(worker: Any, trace: str) -> pathlib.Path:
    """Returns where a worker keeps a trace that it was given."""
    return pathlib.Path(worker.local_directory) / f"trimtab-{trace}"


def place(worker: Any, trace: str, path: str) -> str | None:
    """Returns where a worker has a trace: its client's file, if it sees that with the same content, or its own copy."""
    known: dict[str, str] = worker.__dict__.setdefault("trimtab_traces", {})
    if trace not in known:
        copy = received(worker, trace)
        if copy.exists():
            known[trace] = str(copy)
        elif os.path.isfile(path) and trace_hash(path) == trace:
            known[trace] = path
    return known.get(trace)


def version() -> str:
    """Returns the version of a worker."""
    return __version__


def lacks(trace: str, path: str, dask_worker: Any) -> bool:
    """Returns true if a worker has neither the file nor a copy of a trace."""
    return place(dask_worker, trace, path) is None


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
        (key, task, trace, None if path is None else os.fspath(path)) for key, task, trace, path in plan.missing()
    ]
    provided: set[str] = set()
    for trace, path in {(trace, path) for _, _, trace, path in missing if trace is not None and path is not None}:
        if any(client.run(lacks, trace, path).values()):
            provide(client, trace, path, provided)
    threads = sum(client.nthreads().values())
    left = iter(missing)
    cells: dict[Any, tuple[str, str, str | None, str | None]] = {}
    running = as_completed()
    lost: list[str] = []

    def submit(cell: tuple[str, str, str | None, str | None]) -> None:
        future = client.submit(compute, *cell[1:], pure=False)
        cells[future] = cell
        running.add(future)

    try:
        for _, cell in zip(range(max(1, threads) * IN_FLIGHT), left, strict=False):
            submit(cell)
        for future in running:
            cell = cells.pop(future)
            try:
                result: bytes | None = future.result()
            except distributed.KilledWorker as error:
                lost.append(f"{cell[0]}: {error}")
                result = b""
            if result:
                plan.store(cell[0], result)
            elif result is None and cell[2] is not None and cell[3] is not None:
                # A worker that joined after the others had been asked.
                provide(client, cell[2], cell[3], provided)
                submit(cell)
                continue
            following = next(left, None)
            if following is not None:
                submit(following)
    finally:
        client.cancel(list(cells))
        for trace in provided:
            client.unregister_worker_plugin(plugin_name(trace))
    table = plan.table()
    if lost:
        raise Error(f"{len(lost)} cells have no results, since each ended several workers; the first: {lost[0]}")
    return table


def provide(client: distributed.Client, trace: str, path: str, provided: set[str]) -> None:
    """Gives a trace to the workers, once."""
    if trace not in provided:
        client.register_plugin(TraceFile(trace, path))
        provided.add(trace)
