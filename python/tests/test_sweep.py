"""Sweeps on this machine and on a cluster of real processes."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import distributed
import pandas
import pytest

import pageyard
from pageyard.sweep import sweep

SWEEP = """
policies = ["Base", "Linux612"]
seeds = [1, 2, 3]
[[trace]]
file = "kbuild.pgy"
[[workload]]
name = "micro"
machines = ["desktop"]
memory = "256M"
set = { rounds = 3, blocks = 16 }
"""
CELLS = 2 * 3 * 2


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory, kbuild: pathlib.Path) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("sweep")
    shutil.copy(kbuild, folder)
    path = folder / "sweep.toml"
    path.write_text(SWEEP)
    return path


@pytest.fixture(scope="module")
def local(described: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("local")
    assert "* on the Pareto front" in sweep(described, folder)
    return folder


def cells(folder: pathlib.Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "cells").iterdir()}


def test_the_table_has_every_cell_once(local: pathlib.Path) -> None:
    table = pandas.read_parquet(local / "results.parquet")
    keys = table[["input", "policy", "seed"]].drop_duplicates()
    assert len(keys) == CELLS == len(cells(local))
    once = ["input", "policy", "seed", "metric", "sample"]
    assert not table.duplicated(once).any()
    of_base = table[(table.input == "kbuild.pgy") & (table.metric == "zone_pages")]
    assert (of_base[of_base.policy == "Base"].value == 109_920).all()


def test_ctrl_c_keeps_finished_cells(described: pathlib.Path, local: pathlib.Path, tmp_path: pathlib.Path) -> None:
    def press(stage: str, at: int, total: "int | None") -> None:
        if at >= 1:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        sweep(described, tmp_path, progress=press)
    kept = cells(tmp_path)
    assert 1 <= len(kept) < CELLS and not (tmp_path / "results.parquet").exists()
    sweep(described, tmp_path)
    assert cells(tmp_path) == cells(local)
    assert kept.items() <= cells(tmp_path).items()


def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(
    described: pathlib.Path, local: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
        local_directory=os.fspath(tmp_path / "dask"),
    ) as cluster, distributed.Client(cluster) as client:
        workers = client.run(os.getpid)
        assert len(set(workers.values())) == 2 and os.getpid() not in workers.values()
        killed: list[int] = []
        seen: list[int] = []

        def kill(stage: str, at: int, total: "int | None") -> None:
            seen.append(at)
            if at == 2 and not killed:
                killed.append(next(iter(workers.values())))
                os.kill(killed[0], signal.SIGKILL)

        sweep(described, tmp_path / "results", client=client, progress=kill)
        assert killed, "a worker was killed in the middle"
        assert seen == list(range(CELLS + 1)), "every result was counted once"
    assert cells(tmp_path / "results") == cells(local)
    for file in ("results.parquet", "index.html"):
        assert (tmp_path / "results" / file).read_bytes() == (local / file).read_bytes(), file


def test_a_result_of_another_cell_is_refused(described: pathlib.Path, tmp_path: pathlib.Path) -> None:
    from pageyard import _pageyard

    plan = _pageyard.Sweep.open(described, tmp_path, "program")
    (key, cell, _), (other, _, _) = plan.missing()[-2:]
    result = _pageyard.run_cell(cell, "program", None)
    with pytest.raises(pageyard.LabError, match="another cell"):
        plan.keep(other, result)
    with pytest.raises(pageyard.LabError, match="another cell"):
        plan.keep(key, _pageyard.run_cell(cell, "another program", None))
    plan.keep(key, result)
    plan.keep(key, result)
    assert len(plan.missing()) == CELLS - 1
    with pytest.raises(pageyard.LabError, match="results are missing"):
        plan.finish()


def test_another_build_on_a_worker_is_an_error_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = sys.modules["pageyard.sweep"]

    def refuse(*arguments: object, **options: object) -> str:
        return module._cell("", "another program", None, None)

    monkeypatch.setattr(module, "sweep", refuse)
    assert module.main(["sweep.toml"]) == 2
    assert capsys.readouterr().err.startswith("pageyard.sweep: this worker has another build")


def test_the_command_line(described: pathlib.Path, local: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shutil.copytree(local / "cells", tmp_path / "results" / "cells")
    command = [sys.executable, "-m", "pageyard.sweep", os.fspath(described), "-o", os.fspath(tmp_path / "results")]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0 and "* on the Pareto front" in ran.stdout, ran.stderr
    assert (tmp_path / "results" / "index.html").read_bytes() == (local / "index.html").read_bytes()
    wrong = subprocess.run([*command[:3], "nowhere.toml"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "nowhere.toml" in wrong.stderr
    for jobs in ("-1", "0", "4097"):
        wrong = subprocess.run([*command, "--jobs", jobs], capture_output=True, text=True)
        assert wrong.returncode == 2 and f"--jobs {jobs}: expected 1 to 4096" in wrong.stderr
    with pytest.raises(ValueError, match="jobs 0: expected 1 to 4096"):
        sweep(described, tmp_path, jobs=0)
    with pytest.raises(ValueError, match="memory -1: expected"):
        sweep(described, tmp_path, memory=-1)
    # Without a port: a ValueError of distributed.
    wrong = subprocess.run([*command, "--on", "dask://x"], capture_output=True, text=True)
    assert wrong.returncode == 2 and wrong.stderr.startswith("pageyard.sweep: "), wrong.stderr
    wrong = subprocess.run([*command, "--jobs", "2", "--on", "dask://x:1"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "remove it, or --on" in wrong.stderr
    for limit in ({"jobs": 2}, {"memory": 1 << 30}):
        with pytest.raises(ValueError, match="leave them out with a client"):
            sweep(described, tmp_path, client=object(), **limit)
