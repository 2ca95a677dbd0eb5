#!/bin/bash
# DuckDB writes the sum of whole numbers into Parquet as a float, and loses its low digits without a word.
#
# duckdb 1.4.0, pyarrow 21.0.0. sum() of a BIGINT column has the type HUGEINT. Parquet has no such type, and COPY writes a
# DOUBLE: exact up to 2^53 only. So bytes that were summed up, or addresses that were computed from a sum, come back as floats.
# Seen: sum(length) is 9007199254740993 in DuckDB; the file's column is "double" and reads as 9007199254740992.0, in pyarrow and
# in DuckDB itself. There is no error and no warning. A cast to BIGINT before the COPY keeps the number.
# Exit code 1: this has changed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target packages duckdb==1.4.0 pyarrow==21.0.0
PYTHONPATH=packages python3 - <<'PYTHON'
import duckdb
import pyarrow.parquet

duckdb.sql("create table t as select * from (values (9007199254740993::bigint), (0::bigint)) v(length)")
in_duckdb = duckdb.sql("select sum(length), typeof(sum(length)) from t").fetchone()
duckdb.sql("copy (select sum(length) as sum, sum(length)::bigint as cast from t) to 'sum.parquet'")
table = pyarrow.parquet.read_table("sum.parquet")
back = duckdb.sql("select sum from 'sum.parquet'").fetchone()
print(in_duckdb, table.schema.field("sum").type, table["sum"].to_pylist(), table["cast"].to_pylist(), back)
assert in_duckdb == (9007199254740993, "HUGEINT")
assert str(table.schema.field("sum").type) == "double"
assert table["sum"].to_pylist() == [9007199254740992.0] and back == (9007199254740992.0,)
assert table["cast"].to_pylist() == [9007199254740993]
PYTHON
