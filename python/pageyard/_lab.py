"""Replays, workloads and conformance runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator, Optional, Union

from . import _pageyard
from ._optional import need
from ._results import Conformance, Replay, Runs

if TYPE_CHECKING:
    Path = Union[str, os.PathLike[str]]
    Names = Union[str, Iterable[str]]

#: Receives the stage, the position, and the end if it is known.
Progress = Callable[[str, int, Optional[int]], object]

DEFAULT_POLICIES = ("Base", "Step5", "Step10", "Linux612")


def _names(names: Names) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _settings(knobs: Union[Mapping[str, object], Names]) -> list[str]:
    if isinstance(knobs, Mapping):
        return [f"{name}={value}" for name, value in knobs.items()]
    return _names(knobs)


def _seeds(seeds: Union[int, range]) -> tuple[int, int]:
    """Return the first seed and the number of seeds."""
    if isinstance(seeds, range):
        if seeds.step != 1 or len(seeds) == 0 or seeds.start < 0:
            raise ValueError(f"seeds {seeds}: expected a range of consecutive seeds from 0 up")
        return seeds.start, len(seeds)
    if not 1 <= seeds <= 10_000:
        raise ValueError(f"seeds {seeds}: expected 1 to 10000, or a range")
    return 0, seeds


@contextmanager
def _shown(progress: Union[bool, Progress]) -> Iterator[Optional[Progress]]:
    """Yield a function that receives progress: the caller's, a progress bar's, or none."""
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        yield None
        return
    tqdm = need("tqdm.auto", "progress=True", "progress").tqdm
    bar: Any = None
    stage = ""

    def show(now: str, at: int, total: Optional[int]) -> None:
        nonlocal bar, stage
        if bar is None or now != stage:
            if bar is not None:
                bar.close()
            stage, bar = now, tqdm(desc=now, total=total, unit_scale=True, leave=False)
        bar.n = at
        bar.refresh()

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()


def replay(
    trace: Path,
    *,
    policies: Optional[Names] = None,
    knobs: Union[Mapping[str, object], Names] = (),
    seeds: Union[int, range] = 8,
    tick_phase: Union[str, float] = "inferred",
    state: Optional[Path] = None,
    memory: Optional[str] = None,
    cpus: Optional[int] = None,
    cache_slice: Optional[str] = None,
    kernel: Optional[str] = None,
    lenient: bool = False,
    jobs: int = 0,
    explain: bool = False,
    record: bool = False,
    on: Optional[str] = None,
    progress: Union[bool, Progress] = False,
) -> Replay:
    """Perform a recorded trace under each policy.

    :param trace: the trace: a ``.pgy`` file, a ``trace.dat``, ``perf.data`` or Perfetto file, or text, plain or
        compressed
    :param policies: names as ``pageyard policies`` lists them, such as ``"Base"`` or
        ``"Linux612+high=400"``; the first is what the others are compared with. The default is
        ``DEFAULT_POLICIES`` and the policy that stands for the recording kernel
    :param knobs: settings for all policies: a mapping, or texts ``NAME=VALUE``
    :param seeds: number of seeds to try, or a ``range`` of them
    :param tick_phase: ``"inferred"``, ``"random"``, or a fraction of a second
    :param state: folder with the machine's state files
    :param memory: memory from address 0, such as ``"2G"``, if no zoneinfo says it
    :param cpus: number of CPUs, if no zoneinfo says it
    :param cache_slice: last-level cache per CPU, such as ``"2M"``
    :param kernel: release of the recording kernel, such as ``"6.12"``, whatever the files say
    :param lenient: count damaged parts instead of failing
    :param jobs: number of parallel runs; 0 chooses it
    :param explain: explain the tuning of each CPU's lists
    :param record: record the course over time, for plots
    :param on: simulated machine that determines the cost, such as ``"2x56"``
    :param progress: ``True`` for a progress bar (tqdm), or a function
    :raises LabError: if the trace or an option is invalid
    """
    seed, count = _seeds(seeds)
    names = _names(DEFAULT_POLICIES if policies is None else policies)
    with _shown(progress) as show:
        native = _pageyard.replay(
            trace,
            policies=names,
            add_recording=policies is None,
            knobs=_settings(knobs),
            seed=seed,
            seeds=count,
            tick_phase=str(tick_phase),
            state=state,
            memory=memory,
            cpus=cpus,
            cache_slice=cache_slice,
            kernel=kernel,
            lenient=lenient,
            jobs=jobs,
            explain=explain,
            record=record,
            on=on,
            progress=show,
        )
    return Replay(native, f"pageyard.replay({os.fspath(trace)!r}, policies={names!r})")


def run(
    workload: str,
    *,
    machine: str = "2x56",
    policies: Names = DEFAULT_POLICIES,
    knobs: Union[Mapping[str, object], Names] = (),
    memory: Optional[str] = None,
    descriptor: int = 16,
    seed: int = 1,
    iterations: int = 1,
    set: Optional[Mapping[str, object]] = None,
    record: bool = False,
    progress: Union[bool, Progress] = False,
) -> Runs:
    """Run a workload on a simulated machine under each policy. Times are virtual.

    :param workload: a name of :func:`workloads`
    :param machine: a name of :func:`machines`, ``"detected"``, or a TOML file
    :param policies: as for :func:`replay`
    :param knobs: as for :func:`replay`
    :param memory: memory, such as ``"64G"``, instead of the machine's own
    :param descriptor: bytes of a frame descriptor: 16, or 64 as in Linux
    :param seed: seed of everything random
    :param iterations: number of iterations; each is one sample of every metric
    :param set: parameters of the workload
    :param record: record the first iteration over time
    :param progress: ``True`` for a progress bar (tqdm), or a function
    :raises LabError: if an option is invalid
    """
    names = _names(policies)
    with _shown(progress) as show:
        native = _pageyard.run(
            workload,
            machine=machine,
            memory=memory,
            descriptor=descriptor,
            policies=names,
            knobs=_settings(knobs),
            seed=seed,
            iterations=iterations,
            set=[(name, str(value)) for name, value in (set or {}).items()],
            record=record,
            progress=show,
        )
    return Runs(native, f"pageyard.run({workload!r}, machine={machine!r}, policies={names!r})")


def conform(
    files: Union[Path, Iterable[Path]], *, progress: Union[bool, Progress] = False
) -> Conformance:
    """Compare the allocator with recordings of the real kernel.

    A difference is a result, not an error: see :attr:`Conformance.identical`.

    :param files: recordings: JSON lines, plain or compressed
    :param progress: ``True`` for a progress bar (tqdm), or a function
    :raises LabError: if a file cannot be read or is malformed
    """
    one = isinstance(files, (str, os.PathLike))
    paths: list[Path] = [files] if one else list(files)  # type: ignore[list-item, arg-type]
    with _shown(progress) as show:
        return Conformance(_pageyard.conform(paths, progress=show))


def policies() -> tuple[list[str], list[str]]:
    """Return the names of the policies, and of the modifiers that wrap one."""
    return _pageyard.policies()


def workloads() -> dict[str, tuple[str, dict[str, tuple[str, str]]]]:
    """Return the workloads: for each name its summary, and its parameters with default and help."""
    return _pageyard.workloads()


def machines() -> list[str]:
    """Return the names of the simulated machines that are included."""
    return _pageyard.machines()
