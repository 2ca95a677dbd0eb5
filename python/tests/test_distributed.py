"""Sweeps on a Dask cluster: a scheduler and three worker processes."""

import json
import os
import pathlib
import shutil
import signal
import time
import types
from collections.abc import Iterator
from typing import Any

import distributed
import pytest

import trimtab
from conftest import assert_same_results
from trimtab import _distributed, _trimtab


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[distributed.LocalCluster]:
    with distributed.LocalCluster(
        n_workers=3,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        local_directory=str(tmp_path / "workers"),
    ) as cluster:
        yield cluster


def copies(directory: pathlib.Path) -> list[pathlib.Path]:
    """The copies of traces that workers were given."""
    return sorted(directory.glob("workers/**/trimtab-*"))


def test_cluster_gives_the_same_bytes_as_the_program(
    cluster: distributed.LocalCluster, grid: dict[str, object], swept: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with distributed.Client(cluster) as client:
        table = trimtab.sweep(grid, tmp_path / "by-client", client=client)
    assert_same_results(tmp_path / "by-client", swept)
    assert table.rows() == trimtab.sweep(grid, swept).rows()
    trimtab.sweep(grid, tmp_path / "by-address", client=cluster.scheduler_address)
    assert_same_results(tmp_path / "by-address", swept)
    assert copies(tmp_path) == [], "the workers see the file"


@pytest.mark.parametrize("asked", [True, False], ids=["asked-before", "found-by-a-cell"])
def test_workers_without_the_trace_get_it_once(
    asked: bool,
    cluster: distributed.LocalCluster,
    grid: dict[str, object],
    swept: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[str] = []
    provide = _distributed.provide

    def counted(client: distributed.Client, trace: str, path: str, provided: dict[str, str]) -> None:
        if trace not in provided:
            sent.append(trace)
        provide(client, trace, path, provided)

    if not asked:
        monkeypatch.setattr(_distributed, "lacks", lambda trace, path: False)

    monkeypatch.setattr(_distributed, "provide", counted)
    with distributed.Client(cluster) as client:
        hidden = pathlib.Path(str(grid["traces"][0]))  # type: ignore[index]
        client.run(hide, str(hidden))
        trimtab.sweep(grid, tmp_path / "results", client=client)
        trimtab.sweep(grid, tmp_path / "again", client=client)
    assert_same_results(tmp_path / "results", swept)
    assert_same_results(tmp_path / "again", swept)
    assert len(sent) == 1, "the second sweep finds the copies"
    assert len(copies(tmp_path)) == 3
    assert {path.read_bytes() for path in copies(tmp_path)} == {hidden.read_bytes()}


def hide(path: str) -> None:
    """Makes a worker blind to a file."""
    see = os.path.isfile
    os.path.isfile = lambda other: other != path and see(other)  # type: ignore[assignment]


def test_killed_worker_changes_nothing(
    cluster: distributed.LocalCluster, grid: dict[str, object], tmp_path: pathlib.Path
) -> None:
    long = {**grid, "seeds": list(range(1, 13)), "passes": 4}
    stored: list[str] = []

    class Watched:
        """A plan that ends a worker in the middle."""

        def __init__(self, plan: _trimtab.Plan) -> None:
            self.plan = plan

        def store(self, key: str, bytes: bytes) -> None:
            self.plan.store(key, bytes)
            stored.append(key)
            if len(stored) == 10:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.plan, name)

    with distributed.Client(cluster) as client:
        before = set(client.run(os.getpid).values())
        plan = _trimtab.Plan(json.dumps(long, default=str), str(tmp_path / "results"))
        _distributed.run(Watched(plan), client)  # type: ignore[arg-type]
        deadline = time.monotonic() + 30
        while set(client.run(os.getpid).values()) == before:
            assert time.monotonic() < deadline, "no worker was ended"
            time.sleep(0.1)
    assert len(stored) == len(set(stored)) == len(plan)
    trimtab.sweep(long, tmp_path / "alone")
    assert_same_results(tmp_path / "results", tmp_path / "alone")


def test_cell_that_fails_is_recorded(cluster: distributed.LocalCluster, tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "broken.log"
    broken.write_text("fio version 3 iolog\n0 sda add\n0 sda open\n1 sda write 0 4096\nrubbish\n")
    grid = {"traces": [broken], "policies": ["none"], "workloads": ["uniform"], "blocks": 64}
    with distributed.Client(cluster) as client:
        rows = trimtab.sweep(grid, tmp_path / "results", client=client).rows()
    assert [row["error"] is None for row in rows] == [False, True]
    assert str(broken) in rows[0]["error"] and "row 5" in rows[0]["error"]
    trimtab.sweep(grid, tmp_path / "alone")
    shutil.rmtree(tmp_path / "workers", ignore_errors=True)
    assert_same_results(tmp_path / "results", tmp_path / "alone")


def test_other_version_is_refused(
    cluster: distributed.LocalCluster, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {"workloads": ["uniform"], "blocks": 64}
    monkeypatch.setattr(_distributed, "__version__", "0.0.1")
    with distributed.Client(cluster) as client, pytest.raises(trimtab.Error, match="version mismatch"):
        trimtab.sweep(grid, tmp_path / "results", client=client)
    with pytest.raises(trimtab.Error, match="version mismatch: the client has trimtab 0.0.1"):
        _trimtab.run_cell('{"version": "0.0.1", "cell": {}}')
    with pytest.raises(trimtab.Error, match="shard and jobs are for sweeps in this process"):
        trimtab.sweep(grid, tmp_path, client="tcp://nowhere:1", shard="1/2")


def test_worker_looks_again_at_a_file_that_was_replaced(tmp_path: pathlib.Path) -> None:
    worker = types.SimpleNamespace(local_directory=str(tmp_path / "worker"))
    one, other = tmp_path / "one.log", tmp_path / "other.log"
    one.write_text("fio version 3 iolog\n0 sda add\n0 sda open\n1 sda write 0 4096\n")
    trace = _trimtab.trace_hash(str(one))
    assert _distributed.place(worker, trace, str(one)) == str(one)
    one.rename(other)
    one.write_text("fio version 3 iolog\n0 sda add\n0 sda open\n1 sda write 4096 4096\n")
    assert _distributed.place(worker, trace, str(one)) is None
    assert _distributed.place(worker, trace, str(other)) == str(other)
    other.unlink()
    assert _distributed.place(worker, trace, str(other)) is None


def test_worker_that_cannot_keep_a_trace_ends_the_sweep(
    cluster: distributed.LocalCluster,
    grid: dict[str, object],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_distributed, "compute", lambda *_: None)
    with distributed.Client(cluster) as client, pytest.raises(trimtab.Error, match="could not keep the trace"):
        trimtab.sweep(grid, tmp_path / "results", client=client)
