"""What the tests share."""

import os
import pathlib
import random
import shutil
import subprocess

import pytest


@pytest.fixture(scope="session")
def program() -> str:
    """The program `trimtab` of the same sources."""
    found = os.environ.get("TRIMTAB") or shutil.which("trimtab")
    assert found, "TRIMTAB must name the program to compare with"
    return found


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A trace with writes, reads and discards, as fio logs them."""
    path = tmp_path_factory.mktemp("traces") / "fio.log"
    draw = random.Random(18)
    lines = ["fio version 3 iolog", "0 /dev/sda add", "0 /dev/sda open"]
    for time in range(3000):
        action = draw.choice(["write"] * 6 + ["read"] * 3 + ["trim"])
        lines.append(f"{time * 1000} /dev/sda {action} {draw.randrange(4096) * 4096} {draw.randrange(1, 9) * 4096}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def swept(program: str, trace: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory in which the program swept `grid`."""
    output = tmp_path_factory.mktemp("swept")
    arguments = ["--trace", str(trace), "--profile", "nvme-tlc,ocz-agility-3", "--policy", "none,online,ideal"]
    arguments += ["--seed", "1,2", "--workload", "uniform", "--blocks", "64", "--size", "1G"]
    subprocess.run([program, "sweep", "-o", str(output), *arguments], check=True, stdout=subprocess.DEVNULL)
    return output


@pytest.fixture(scope="session")
def grid(trace: pathlib.Path) -> dict[str, object]:
    """The grid of `swept`."""
    return {
        "traces": [trace],
        "profiles": ["nvme-tlc", "ocz-agility-3"],
        "policies": ["none", "online", "ideal"],
        "seeds": [1, 2],
        "workloads": ["uniform"],
        "blocks": 64,
        "size": "1G",
    }


def assert_same_results(one: pathlib.Path, other: pathlib.Path) -> None:
    """Compares the files of two sweeps, byte by byte."""
    names = sorted(path.name for path in (one / "cells").glob("*.json"))
    assert names and names == sorted(path.name for path in (other / "cells").glob("*.json"))
    for name in names:
        assert (one / "cells" / name).read_bytes() == (other / "cells" / name).read_bytes(), name
    assert (one / "sweep.parquet").read_bytes() == (other / "sweep.parquet").read_bytes()
