"""Simulations of discard policies (TRIM, UNMAP, NVMe Deallocate) on modelled flash drives.

Sizes and places are bytes. Times of traces and results are nanoseconds of model time, in columns that end in ``_ns``.
Tables are handed out through the Arrow PyCapsule interface, so that pandas, Polars, DuckDB and pyarrow read them:

>>> import trimtab
>>> table = trimtab.sweep({"workloads": ["uniform"], "spare": [0.2], "blocks": 64, "pages-per-block": 64})
>>> len(table), table.rows()[0]["workload"]
(1, 'uniform')
"""

from ._api import fit_discards, simulate, sweep
from ._trimtab import Error, Profile, Simulation, Table, Trace, __version__, profiles, read_trace

__all__ = [
    "Error",
    "Profile",
    "Simulation",
    "Table",
    "Trace",
    "__version__",
    "fit_discards",
    "profiles",
    "read_trace",
    "simulate",
    "sweep",
]
