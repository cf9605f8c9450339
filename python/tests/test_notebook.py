"""The example notebook, executed in a kernel of its own."""

import os
import pathlib

import nbformat
from nbclient import NotebookClient

from conftest import SAMPLES

NOTEBOOK = pathlib.Path(__file__).parents[1] / "examples" / "first-steps.ipynb"


def test_every_cell_runs(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not committed"
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": os.fspath(SAMPLES.parent)}}).execute()
    shown = "".join(str(cell.get("outputs")) for cell in notebook.cells)
    assert "pages taken from the zone" in shown and "image/png" in shown
