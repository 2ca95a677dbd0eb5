#!/bin/bash
# Polars writes Arrow files that readers of the footer understand, and readers from the front do not.
#
# polars 2.1.0, pyarrow 26.0.1. The Columnar Format says of a file: mark, padding, a stream, footer. So one can pass over eight
# bytes and read a file as a stream, from a pipe, say. Polars writes the schema there without the mark and the length that
# a message has: it has them only for the batches.
# Seen: pyarrow reads the file by its footer. As a stream, behind the first eight bytes, pyarrow reads its own file, and
# refuses the file of Polars: "Invalid flatbuffers message". Polars' own stream is read.
# Exit code 1: this has changed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target packages polars==2.1.0 pyarrow==26.0.1
PYTHONPATH=packages python3 - <<'PYTHON'
import io

import polars
import pyarrow
import pyarrow.feather

frame = polars.DataFrame({"length": [1, 2, 3]})
theirs, ours, stream = io.BytesIO(), io.BytesIO(), io.BytesIO()
frame.write_ipc(theirs)
pyarrow.feather.write_feather(frame.to_arrow(), ours, compression="uncompressed")
frame.write_ipc_stream(stream)


def as_stream(file, begin):
    return pyarrow.ipc.open_stream(file.getvalue()[begin:]).read_all()["length"].to_pylist()


print("schema in Polars' file:", theirs.getvalue()[8:16].hex(" "), "in pyarrow's:", ours.getvalue()[8:16].hex(" "))
assert pyarrow.ipc.open_file(theirs.getvalue()).read_all()["length"].to_pylist() == [1, 2, 3]
assert as_stream(ours, 8) == [1, 2, 3] and as_stream(stream, 0) == [1, 2, 3]
assert ours.getvalue()[8:12] == b"\xff\xff\xff\xff" != theirs.getvalue()[8:12]
try:
    found = as_stream(theirs, 8)
except Exception as error:
    print(f"{type(error).__name__}: {error}")
else:
    raise SystemExit(f"the file is read as a stream: {found}")
PYTHON
