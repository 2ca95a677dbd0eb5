"""The functions of the package: they check and shape arguments for the extension module."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from . import _trimtab
from ._trimtab import Error, Plan, Profile, Simulation, Table

if TYPE_CHECKING:
    import distributed

Path = str | os.PathLike[str]


class DiscardFit(TypedDict):
    """The cost of a discard. An interval is (value, low, high), with the 95 % confidence interval of the value."""

    command_us: tuple[float, float, float]
    """The cost of each command, in microseconds."""
    per_gib_ms: tuple[float, float, float]
    """The cost of each GiB that commands name, in milliseconds."""
    residual: float
    """The median relative distance of the sizes from that line: 0.05 is 5 %."""
    sizes: int
    """How many sizes there were."""


def simulate(
    trace: Path,
    profile: str | Profile | Iterable[str | Profile] = "samsung-870-evo",
    policy: str | Iterable[str] = (),
    *,
    size: int | None = None,
    scale_to: int | None = None,
    device: str | None = None,
    passes: int = 1,
    until_steady: bool = False,
    state: str = "used",
    think_scale: float = 1.0,
    policy_clock: str = "trace",
    seed: int = 0,
    endurance: int | None = None,
) -> Simulation:
    """Replays a trace on drives under discard policies, as ``trimtab sim`` does, on all processors.

    The GIL is released meanwhile, and Ctrl-C stops it.

    Args:
        trace: The trace file, of any format that ``read_trace`` reads.
        profile: Drives: names of built-in profiles, files that end in ``.toml``, or ``Profile`` objects.
        policy: Policies, such as ``"online"`` or ``"batched:1m"``; if empty, all that the trace has the events for.
        size: The size of the drives, in bytes; none for the traced device's.
        scale_to: Scale addresses to drives of this size, in bytes.
        device: The device of the trace; none for the only one that is written.
        passes: How often the trace is replayed.
        until_steady: Repeat passes until write amplification is steady, up to 100.
        state: The drives at the beginning: ``"new"``, ``"used"`` or ``"aged"``.
        think_scale: A multiple of the recorded think times.
        policy_clock: The clock that policies go by: ``"trace"`` or ``"drive"``.
        seed: The seed of every draw.
        endurance: Program and erase cycles that a block lasts; none for those of each profile.

    Raises:
        Error: With the text that the command line prints.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     trace = pathlib.Path(directory) / "fio.log"
    ...     lines = [f"{n} sda write {n % 64 * 4096} 4096" for n in range(500)]
    ...     _ = trace.write_text("\\n".join(["fio version 3 iolog", "0 sda add", "0 sda open", *lines]) + "\\n")
    ...     simulation = simulate(trace, "nvme-tlc", "none", size=1 << 30)
    >>> simulation.table.rows()[0]["host_pages"]
    500
    """
    profiles: list[str | Profile] = [profile] if isinstance(profile, str | Profile) else list(profile)
    return _trimtab.simulate(
        os.fspath(trace),
        profiles,
        [policy] if isinstance(policy, str) else list(policy),
        size=size,
        scale_to=scale_to,
        device=device,
        passes=passes,
        until_steady=until_steady,
        state=state,
        think_scale=think_scale,
        policy_clock=policy_clock,
        seed=seed,
        endurance=endurance,
    )


def plain(value: Any) -> Any:
    """Returns a value of a grid as JSON has it: the text of a path, and the numbers of NumPy's arrays and scalars."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise Error(f"the grid: {value!r} is neither a text, a number, a path nor a list of these")


def sweep(
    grid: Path | Mapping[str, Any],
    output: Path | None = None,
    *,
    client: distributed.Client | str | None = None,
    shard: str | None = None,
    jobs: int | None = None,
) -> Table:
    """Computes every combination of a grid's traces, workloads, drives, policies and options, as ``trimtab sweep``.

    Each combination is a cell with a file of its own in ``output``: what is there is not computed again. A cell that
    fails has its error in the column ``error``, and the others continue.

    Args:
        grid: A TOML file, or a mapping with the same keys, such as
            ``{"traces": ["build.parquet"], "profiles": ["nvme-tlc"], "policies": ["none", "smart"], "seeds": [1, 2]}``.
        output: The directory of the results, which is created if there is none; none for a temporary one.
        client: Where the cells are computed: none for this process, on all processors; otherwise a
            ``dask.distributed.Client``, or the address of its scheduler. Workers that do not have a trace get it.
        shard: The part of the cells to compute, such as ``"1/8"``: the first of eight. Not with ``client``.
        jobs: Cells at a time in this process; none for one a processor, as far as the memory reaches.

    Returns:
        A row a cell, as in ``output``'s ``sweep.parquet``.

    Raises:
        Error: If the grid is wrong, a trace or a profile is missing, or a result can't be kept.

    >>> table = sweep({"workloads": ["uniform", "sequential"], "blocks": 64, "pages-per-block": 64})
    >>> [row["workload"] for row in table.rows()]
    ['uniform', 'sequential']
    """
    if output is None:
        with tempfile.TemporaryDirectory(prefix="trimtab-sweep-") as directory:
            return sweep(grid, directory, client=client, shard=shard, jobs=jobs)
    if client is not None and (shard is not None or jobs is not None):
        raise Error("shard and jobs are for sweeps in this process, not for those with a client")
    plan = (
        Plan(json.dumps(dict(grid), default=plain), os.fspath(output))
        if isinstance(grid, Mapping)
        else Plan.of_file(os.fspath(grid), os.fspath(output))
    )
    if client is None:
        return plan.run(shard, jobs)
    from ._distributed import run

    return run(plan, client)


def fit_discards(sizes: Iterable[int], latencies: Iterable[float]) -> DiscardFit | None:
    """Fits the cost of a discard, command + size x per GiB, to measured ones, as ``trimtab bench`` does.

    Args:
        sizes: What each discard named, in bytes.
        latencies: How long each took, in seconds.

    Returns:
        The fit; none of fewer than three sizes.

    >>> sizes = [4096, 1 << 20, 1 << 26, 1 << 30] * 20
    >>> fit = fit_discards(sizes, [100e-6 + size / (1 << 30) * 2e-3 for size in sizes])
    >>> round(fit["command_us"][0]), round(fit["per_gib_ms"][0], 2)
    (100, 2.0)
    """
    return _trimtab.fit_discards(list(sizes), list(latencies))
