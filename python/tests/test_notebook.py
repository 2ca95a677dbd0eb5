"""The notebook in `examples`."""

import ast
import json
import pathlib


def test_notebook_runs() -> None:
    notebook = json.loads((pathlib.Path(__file__).parents[1] / "examples/sweep.ipynb").read_text())
    names: dict[str, object] = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells):
        parsed = ast.parse("".join(cell["source"]), f"cell {number}")
        exec(compile(parsed, f"cell {number}", "exec"), names)
    assert len(names["frame"]) == 12  # type: ignore[arg-type]
