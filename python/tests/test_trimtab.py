"""The package in one process."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.compute
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

import trimtab
from conftest import assert_same_results


def test_sweep_gives_the_same_bytes_as_the_program(
    grid: dict[str, object], swept: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    table = trimtab.sweep(grid, tmp_path)
    assert_same_results(tmp_path, swept)
    assert len(table) == 14 and all(row["error"] is None and row["erases"] > 0 for row in table.rows())
    assert pyarrow.table(table).equals(pyarrow.parquet.read_table(swept / "sweep.parquet"))
    toml = tmp_path / "grid.toml"
    lines = [f"{key} = {json.dumps(value, default=str)}" for key, value in grid.items()]
    toml.write_text("\n".join(lines))
    changed = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert trimtab.sweep(toml, tmp_path).rows() == table.rows()
    assert changed == {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}


def test_union_of_shards_is_the_whole_sweep(
    grid: dict[str, object], swept: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    parts = [trimtab.sweep(grid, tmp_path, shard=f"{number}/3", jobs=1) for number in (1, 2, 3)]
    assert_same_results(tmp_path, swept)
    assert sum(len(part) for part in parts) == pyarrow.parquet.read_table(swept / "sweep.parquet").num_rows


def test_tables_are_read_by_all(grid: dict[str, object], swept: pathlib.Path) -> None:
    results = trimtab.sweep(grid, swept)
    expected = pyarrow.parquet.read_table(swept / "sweep.parquet")
    assert pyarrow.table(results).equals(expected)
    assert polars.DataFrame(results).equals(polars.read_parquet(swept / "sweep.parquet"))
    counted: Any = duckdb.sql("select count(*), sum(erases) from results")
    assert counted.fetchall() == [(expected.num_rows, sum(expected["erases"].to_pylist()))]
    frame = pandas.DataFrame.from_arrow(results)
    assert list(frame.columns) == results.column_names == expected.column_names
    assert frame["erases"].sum() == sum(expected["erases"].to_pylist())
    assert results.rows() == expected.to_pylist()


def test_simulation_gives_the_figures_of_the_program(program: str, trace: pathlib.Path) -> None:
    simulation = trimtab.simulate(trace, ["nvme-tlc", trimtab.Profile("ocz-agility-3")], ["none", "online"], size=1 << 30, seed=3)
    arguments = ["--profile", "nvme-tlc,ocz-agility-3", "--policy", "none,online", "--seed", "3", "--size", "1G", "--json", "-"]
    output = subprocess.run([program, "sim", str(trace), *arguments], check=True, capture_output=True)
    wanted, found = json.loads(output.stdout), json.loads(simulation.to_json())
    for document in (wanted, found):
        for run in document["runs"]:
            del run["wall_s"]
    assert found["runs"] == wanted["runs"] and found["drives"] == wanted["drives"]
    rows = simulation.table.rows()
    assert [(row["profile"], row["policy"]) for row in rows] == [
        (profile, policy) for profile in ("nvme-tlc", "ocz-agility-3") for policy in ("none", "online")
    ]
    assert [row["erases"] for row in rows] == [run["outcome"]["counters"]["erases"] for run in wanted["runs"]]
    assert pyarrow.table(simulation).to_pylist() == rows


def test_trace_is_read(trace: pathlib.Path) -> None:
    opened = trimtab.read_trace(trace)
    events = pyarrow.table(opened)
    lines = [line.split() for line in trace.read_text().splitlines()[3:]]
    assert events["time_ns"].to_pylist() == [int(time) * 1000 for time, *_ in lines]
    kinds = {"write": "write", "read": "read", "trim": "discard"}
    assert events["kind"].to_pylist() == [kinds[line[2]] for line in lines]
    assert events["start"].to_pylist() == [int(line[3]) for line in lines]
    assert events["length"].to_pylist() == [int(line[4]) for line in lines]
    assert set(events["device"].to_pylist()) == {"/dev/sda"}
    assert pyarrow.table(opened).equals(events), "it can be read again"
    assert len(polars.DataFrame(opened)) == len(pandas.DataFrame.from_arrow(opened)) == len(lines)
    discards: Any = duckdb.sql("select count(*) from opened where kind = 'discard'")
    assert discards.fetchall() == [(sum(line[2] == "trim" for line in lines),)]


def test_tables_of_other_programs_come_back(trace: pathlib.Path, tmp_path: pathlib.Path) -> None:
    events = pyarrow.table(trimtab.read_trace(trace))
    frame, polar = events.to_pandas(), polars.DataFrame(trimtab.read_trace(trace))
    pyarrow.parquet.write_table(events, tmp_path / "pyarrow.parquet", compression="brotli", data_page_version="2.0")
    frame.to_parquet(tmp_path / "pandas.parquet")
    frame.to_csv(tmp_path / "pandas.csv")
    polar.write_parquet(tmp_path / "polars.parquet")
    polar.write_csv(tmp_path / "polars.csv")
    relation: Any = duckdb.sql("select * from events")
    relation.write_parquet(str(tmp_path / "duckdb.parquet"))
    relation.write_csv(str(tmp_path / "duckdb.csv"))
    pyarrow.feather.write_feather(events, str(tmp_path / "pyarrow.feather"))
    with pyarrow.ipc.new_stream(tmp_path / "pyarrow.stream", events.schema) as stream:
        stream.write_table(events, max_chunksize=1000)
    coded = events.set_column(2, "kind", events["kind"].dictionary_encode())
    pyarrow.feather.write_feather(coded, str(tmp_path / "coded.feather"), compression="zstd")
    frame.to_feather(tmp_path / "pandas.feather")
    polar.write_ipc(tmp_path / "polars.ipc", compression="zstd")
    polar.with_columns(polars.col("kind", "device").cast(polars.Categorical)).write_ipc(tmp_path / "coded.ipc")
    polar.write_ipc_stream(tmp_path / "polars.stream")
    # A type that Arrow's metadata of the file has, but not this program, in a column that is not read.
    polar.with_columns(mine=polars.lit(7, polars.Int128)).write_parquet(tmp_path / "wide.parquet")
    frame.to_csv(tmp_path / "pandas.tsv", sep="\t")
    frame.assign(length=frame["length"].astype("category")).to_feather(tmp_path / "categories.feather")
    pyarrow.feather.write_feather(relation.to_arrow_table(), str(tmp_path / "duckdb.feather"))
    written = sorted(tmp_path.iterdir())
    assert len(written) == 18
    for path in written:
        assert pyarrow.table(trimtab.read_trace(path)).equals(events), path.name
    discards = frame[frame["kind"] == "discard"].assign(mine=1)
    discards["time_ns"] = pandas.to_datetime(discards["time_ns"]).astype("datetime64[us]")
    discards.to_parquet(tmp_path / "discards.parquet")
    found = pyarrow.table(trimtab.read_trace(tmp_path / "discards.parquet"))
    times = events.filter(pyarrow.compute.equal(events["kind"], "discard"))["time_ns"].to_pylist()
    assert found["time_ns"].to_pylist() == [time - times[0] for time in times]


def test_durations_come_back_in_their_unit(trace: pathlib.Path, tmp_path: pathlib.Path) -> None:
    events = pyarrow.table(trimtab.read_trace(trace))
    microseconds = list(range(len(events)))
    place = events.column_names.index("latency_ns")
    for unit, nanoseconds in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)):
        latency = pyarrow.array(microseconds, pyarrow.duration(unit))
        timed = events.set_column(place, "latency_ns", latency)
        pyarrow.parquet.write_table(timed, tmp_path / "pyarrow.parquet")
        timed.to_pandas().to_parquet(tmp_path / "pandas.parquet")
        pyarrow.feather.write_feather(timed, str(tmp_path / "pyarrow.feather"))
        if unit != "s":
            polars.DataFrame(timed).write_parquet(tmp_path / "polars.parquet")
            polars.DataFrame(timed).write_ipc(tmp_path / "polars.ipc")
        for path in tmp_path.iterdir():
            found = pyarrow.table(trimtab.read_trace(path))["latency_ns"].to_pylist()
            assert found == [latency * nanoseconds for latency in microseconds], (path.name, unit)
            path.unlink()
    # In CSV a duration is a text, and no number of nanoseconds; DuckDB has it as months, days and microseconds.
    timed.to_pandas().to_csv(tmp_path / "pandas.csv")
    intervals: Any = duckdb.sql("select * replace (to_microseconds(7) as latency_ns) from events")
    intervals.write_parquet(str(tmp_path / "duckdb.parquet"))
    for path in tmp_path.iterdir():
        with pytest.raises(Exception, match="latency_ns"):
            pyarrow.table(trimtab.read_trace(path))


def test_error_in_a_trace_names_its_row(trace: pathlib.Path, tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "broken.log"
    broken.write_text(trace.read_text() + "rubbish\n")
    with pytest.raises(Exception, match="broken.log: row 3004: "):
        pyarrow.table(trimtab.read_trace(broken))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trimtab.sweep({"trace": ["a"]}), "the grid: trace: unknown field `trace`"),
        (lambda: trimtab.sweep({"traces": ["missing"]}), "cannot read the trace missing: No such file"),
        (
            lambda: trimtab.sweep({"workloads": ["uniform"], "policies": ["fast"]}),
            'the grid: policies[0]: there is no policy "fast"',
        ),
        (lambda: trimtab.sweep({"workloads": ["uniform"]}, shard="9/8"), '"9/8" is no shard'),
        (lambda: trimtab.simulate("missing"), "missing: No such file"),
        (lambda: trimtab.simulate("a", policy="fast"), 'there is no policy "fast"'),
        (lambda: trimtab.simulate("a", state="old"), 'state: "old" is none of new, used, aged'),
        (lambda: trimtab.simulate("a", passes=0), "passes: must be 1 or more"),
        (lambda: trimtab.simulate("a", passes=5, until_steady=True), "passes: cannot be used with until_steady"),
        (lambda: trimtab.simulate("a", ["nvme-tlc", "nvme-tlc"]), "two of the drives are called nvme-tlc"),
        (lambda: trimtab.sweep({"workloads": ["uniform"], "blocks": object()}), "is neither a text, a number, a path"),
        (lambda: trimtab.simulate("a", think_scale=-1), "think_scale: -1 is not between 0 and"),
        (lambda: trimtab.Profile("no-such-drive"), "no-such-drive"),
        (lambda: trimtab.read_trace("missing"), "missing: No such file"),
        (lambda: trimtab.read_trace("missing", format="xls"), 'there is no trace format "xls"'),
        (lambda: trimtab.fit_discards([1], []), "1 sizes and 0 latencies: each discard needs both"),
        (lambda: trimtab.fit_discards([1], [-1.0]), "the latency -1 is not between 0 and"),
    ],
)
def test_errors_are_exceptions_with_their_text(call: Any, message: str) -> None:
    with pytest.raises(trimtab.Error) as raised:
        call()
    assert message in str(raised.value)


def test_profiles() -> None:
    assert "nvme-tlc" in trimtab.profiles()
    profile = trimtab.Profile("nvme-tlc")
    assert profile.name == "nvme-tlc" and 0 < profile.over_provisioning < 1
    assert trimtab.Profile.parse(profile.toml).model == profile.model


def test_fit_finds_the_cost() -> None:
    sizes = [4096, 1 << 20, 1 << 25, 1 << 30] * 50
    fit = trimtab.fit_discards(sizes, [50e-6 + size / (1 << 30) * 3e-3 for size in sizes])
    assert fit is not None and fit["sizes"] == 4
    assert fit["command_us"][0] == pytest.approx(50, rel=0.01)
    assert fit["per_gib_ms"][0] == pytest.approx(3, rel=0.01)
    assert trimtab.fit_discards([1, 2], [1e-6, 1e-6]) is None


LONG = """
import trimtab
print("begins", flush=True)
trimtab.sweep({"workloads": ["uniform"], "drive-writes": 100000.0})
"""


LONG_TRACE = """
import sys, trimtab
print("begins", flush=True)
trimtab.sweep({"traces": [sys.argv[1]]})
"""


@pytest.mark.parametrize("code", [LONG, LONG_TRACE])
def test_ctrl_c_ends_a_sweep(code: str, tmp_path: pathlib.Path) -> None:
    # Its content is hashed first, which takes minutes.
    trace = tmp_path / "trace"
    trace.touch()
    os.truncate(trace, 1 << 42)
    command = [sys.executable, "-c", code, str(trace)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(1)
        assert child.poll() is None, "it should take much longer"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors and child.returncode != 0


def test_other_threads_run_meanwhile(tmp_path: pathlib.Path) -> None:
    ticks: list[float] = []
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(0.01):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.monotonic()
    trimtab.sweep({"workloads": ["uniform"], "seeds": [1, 2], "drive-writes": 40.0}, tmp_path)
    took = time.monotonic() - begin
    ended.set()
    thread.join()
    longest = max(later - earlier for earlier, later in zip([begin, *ticks], [*ticks, begin + took], strict=True))
    assert took > 0.2 and longest < took / 2, (took, longest)
