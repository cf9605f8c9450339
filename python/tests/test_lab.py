"""Replays, workloads and conformance runs."""

import pathlib
import signal
import sys
import threading

import pytest

import pageyard
from pageyard import _pageyard

#: A workload that would run for hours.
ENDLESS = {"machine": "desktop", "memory": "256M", "policies": "Base", "iterations": 1_000_000}


@pytest.fixture(scope="module")
def replayed(kbuild: pathlib.Path) -> pageyard.Replay:
    return pageyard.replay(kbuild, policies=["Base", "Linux612"], seeds=1)


def test_replay_gives_the_programs_figures(replayed: pageyard.Replay) -> None:
    # The README's table.
    assert "pages taken from the zone" in str(replayed)
    rows = {row["policy"]: row for row in replayed.rows()}
    assert list(rows) == ["recorded", "Base", "Linux612"]
    assert rows["recorded"]["zone_pages"] == 83_362
    assert rows["Base"]["zone_pages"] == 109_920
    assert rows["Linux612"]["refill_holds"] == 412
    assert replayed.policies == ["Base", "Linux612"]
    assert replayed.html().startswith("<!DOCTYPE html>")


def test_data_frames_have_the_rows(replayed: pageyard.Replay) -> None:
    pandas, polars = replayed.to_pandas(), replayed.to_polars()
    assert pandas["policy"].tolist() == polars["policy"].to_list()
    assert pandas["zone_pages"].tolist() == polars["zone_pages"].to_list()


def test_knobs_apply_to_every_policy(kbuild: pathlib.Path) -> None:
    knobs = pageyard.replay(kbuild, policies="Linux612", knobs={"high": 400}, seeds=1)
    named = pageyard.replay(kbuild, policies="Linux612+high=400", seeds=1)
    assert knobs.policies == ["Linux612+high=400"]
    assert knobs.rows() == named.rows()


def test_results_are_the_programs(replayed: pageyard.Replay, kbuild: pathlib.Path) -> None:
    assert replayed.data["version"] == pageyard.__version__
    with pytest.raises(pageyard.LabError, match="named twice"):
        pageyard.replay(kbuild, policies=["Base", "Base"])
    with pytest.raises(pageyard.LabError, match="iterations 0"):
        pageyard.run("micro", machine="desktop", iterations=0)


def test_seeds_can_be_a_range(kbuild: pathlib.Path) -> None:
    several = pageyard.replay(kbuild, policies="Linux612", seeds=range(5, 7)).data
    assert (several["seed"], several["seeds"]) == (5, 2)
    with pytest.raises(ValueError, match="consecutive"):
        pageyard.replay(kbuild, seeds=range(0, 4, 2))


def test_run_is_repeatable() -> None:
    of = {"machine": "desktop", "memory": "1G", "policies": ["Base", "Linux612"], "seed": 3}
    first, second = pageyard.run("micro", **of), pageyard.run("micro", **of)
    assert first.data == second.data and first.policies == ["Base", "Linux612"]
    rows = first.rows()
    assert {row["policy"] for row in rows} == {"Base", "Linux612"}
    assert first.to_pandas()["value"].tolist() == first.to_polars()["value"].to_list()
    assert "micro" in first.html()
    # A simulated figure is never without its mark.
    assert {(row["world"], row["machine"]) for row in rows} == {("simulated", "desktop")}
    assert {row["parameters.machine.memory"] for row in rows} == {str(1 << 30)}
    assert all("parameters.rounds" in row for row in rows)


def test_conform_compares_with_the_kernel(recordings: list[pathlib.Path]) -> None:
    result = pageyard.conform(recordings[:2])
    assert result.identical and "identical" in str(result)
    assert [row["identical"] for row in result.rows()] == [True, True]
    assert pageyard.conform(recordings[0]).data == result.data[:1]


def test_errors_have_the_programs_text(kbuild: pathlib.Path) -> None:
    with pytest.raises(pageyard.LabError, match="unknown policy Linux7; expected one of Linux612"):
        pageyard.replay(kbuild, policies="Linux7")
    with pytest.raises(pageyard.LabError, match="unknown workload nope"):
        pageyard.run("nope")
    with pytest.raises(pageyard.LabError, match="unknown parameter"):
        pageyard.run("micro", set={"nope": 1})
    with pytest.raises(pageyard.LabError, match="nowhere.pgy: [Nn]o such file"):
        pageyard.replay("nowhere.pgy")
    with pytest.raises(pageyard.LabError, match="not a size"):
        pageyard.replay(kbuild, memory="lots")


def test_names_are_those_of_the_program() -> None:
    policies, modifiers = pageyard.policies()
    assert "Linux612" in policies and "Vanilla" in modifiers
    assert pageyard.workloads()["kbuild"][0]
    assert "2x56" in pageyard.machines()


def interrupting(stage: str, at: int, total: "int | None") -> None:
    """Progress that presses Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_ends_a_workload() -> None:
    with pytest.raises(KeyboardInterrupt):
        pageyard.run("micro", progress=interrupting, **ENDLESS)


def test_ctrl_c_ends_a_single_long_run() -> None:
    # One iteration, whose end no test would wait for: it stops between two switches of its tasks.
    with pytest.raises(KeyboardInterrupt):
        pageyard.run("kbuild", machine="2x56", memory="4G", policies="Base",
                     set={"objects": 100_000}, progress=interrupting)


def test_ctrl_c_ends_a_replay(kbuild: pathlib.Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        pageyard.replay(kbuild, policies="Linux612", seeds=10_000, progress=interrupting)


def test_ctrl_c_ends_reading(kbuild: pathlib.Path, recordings: list[pathlib.Path]) -> None:
    with pytest.raises(KeyboardInterrupt):
        pageyard.Trace(kbuild, progress=interrupting)
    with pytest.raises(KeyboardInterrupt):
        pageyard.conform(recordings, progress=interrupting)


def test_an_error_in_progress_ends_the_work() -> None:
    def fails(stage: str, at: int, total: "int | None") -> None:
        raise ValueError("from progress")

    with pytest.raises(ValueError, match="from progress"):
        pageyard.run("micro", progress=fails, **ENDLESS)


def test_other_threads_run_meanwhile(kbuild: pathlib.Path) -> None:
    """The interpreter switches threads only where one waits, so the main thread counts only if the
    replay gives the interpreter up."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=lambda: pageyard.Trace(kbuild))
        thread.start()
        counted = 0
        while thread.is_alive():
            counted += 1
            thread.join(0.001)
    finally:
        sys.setswitchinterval(before)
    assert counted > 0


def test_progress_reaches_the_end(kbuild: pathlib.Path) -> None:
    seen: list[tuple[str, int, "int | None"]] = []
    pageyard.run("micro", machine="desktop", memory="1G", policies="Base", iterations=2,
                 progress=lambda *now: seen.append(now))
    assert seen[-1] == ("run", seen[-1][2], seen[-1][2])
    # tqdm, as a user would see it.
    pageyard.Trace(kbuild, progress=True)


def test_a_panic_becomes_an_exception() -> None:
    with pytest.raises(RuntimeError, match="internal error, please report it: out of range"):
        _pageyard._panic("out of range")
    assert pageyard.machines()
