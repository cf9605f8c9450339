"""Sweeps: on this machine, or on a Dask cluster.

``python -m pageyard.sweep SWEEP.toml --on dask://HOST:PORT`` is the command line, :func:`sweep` the
function. The book's chapter "Sweeps" (docs/sweep.md) describes the file.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import tempfile
from typing import Any, Optional, Union

from . import _pageyard
from ._lab import Progress, _shown
from ._optional import need

__all__ = ["sweep"]


#: Most cells at once, as in ``pageyard sweep --jobs``.
MAX_JOBS = 4096


def _program() -> str:
    """Return what identifies this build of the package: the hash of its compiled part."""
    return _pageyard.content_hash(_pageyard.__file__)


def _content(data: bytes) -> bytes:
    """Bring a trace to a worker. A task, so that another worker can repeat it."""
    return data


def _cell(cell: str, program: str, trace_hash: Optional[str], data: Optional[bytes]) -> str:
    """Run one cell on a worker."""
    mine = _program()
    if mine != program:
        raise RuntimeError(
            f"this worker has another build of pageyard ({mine[:12]}) than the client"
            f" ({program[:12]}); install the same wheel everywhere"
        )
    if data is None:
        return _pageyard.run_cell(cell, program, None)
    # The file is this task's own: another process may be writing one of the same content.
    with tempfile.NamedTemporaryFile(prefix=f"pageyard-{(trace_hash or '')[:12]}-") as file:
        file.write(data)
        file.flush()
        return _pageyard.run_cell(cell, program, file.name)


def _on_cluster(sweep: _pageyard.Sweep, program: str, client: Any, show: Optional[Progress]) -> None:
    """Compute the missing cells on a cluster, and keep each result as it arrives.

    A cell is a task named by the cell's key. Dask repeats the tasks of a worker that is lost. A
    result is kept under its key, so one that arrives twice replaces itself.
    """
    distributed = need("distributed", "a sweep on a cluster", "dask")
    missing = sweep.missing()
    total, done = len(sweep), len(sweep) - len(missing)
    files = sweep.files()
    contents = {
        trace: client.submit(
            _content, pathlib.Path(files[trace]).read_bytes(), key=f"pageyard-trace-{trace}"
        )
        for trace in {trace for _, _, trace in missing if trace is not None}
    }
    futures = {}
    for key, cell, trace in missing:
        data = None if trace is None else contents[trace]
        future = client.submit(_cell, cell, program, trace, data, key=f"pageyard-cell-{key}")
        futures[future.key] = (key, future)
    if show is not None:
        show("cells", done, total)
    first: Optional[BaseException] = None
    try:
        arriving = distributed.as_completed([future for _, future in futures.values()])
        for future in arriving:
            key, _ = futures.pop(future.key)
            try:
                sweep.keep(key, future.result())
            except Exception as e:
                # The other cells are still wanted, as in a local sweep.
                first = first or e
                continue
            finally:
                future.release()
            done += 1
            if show is not None:
                show("cells", done, total)
    finally:
        client.cancel([future for _, future in futures.values()])
    if first is not None:
        raise first


def sweep(
    description: Union[str, os.PathLike[str]],
    folder: Union[str, os.PathLike[str], None] = None,
    *,
    jobs: Optional[int] = None,
    memory: Optional[int] = None,
    client: Any = None,
    progress: Union[bool, Progress] = False,
) -> str:
    """Run a sweep, write ``results.parquet`` and ``index.html``, and return the fronts as text.

    Finished cells are kept in the folder, so the same call continues an interrupted sweep.

    :param description: the file ``SWEEP.toml``
    :param folder: folder for the results; default: the description with ``.results`` as its ending
    :param jobs: cells at once on this machine, 1 to 4096; default: one per CPU
    :param memory: bytes for all cells together on this machine
    :param client: a ``distributed.Client``: compute the cells on its cluster, whose workers need the
        same build of this package
    :param progress: ``True`` for a progress bar (tqdm), or a function
    :raises LabError: if the description is invalid or a cell fails
    :raises ValueError: if ``jobs`` or ``memory`` is invalid, or given with ``client``
    """
    if jobs is not None and not 1 <= jobs <= MAX_JOBS:
        raise ValueError(f"jobs {jobs}: expected 1 to {MAX_JOBS}")
    if memory is not None and memory < 1:
        raise ValueError(f"memory {memory}: expected a number of bytes of at least 1")
    if client is not None and (jobs is not None or memory is not None):
        raise ValueError("jobs and memory limit cells on this machine; leave them out with a client")
    path = pathlib.Path(description)
    program = _program()
    native = _pageyard.Sweep.open(path, folder or path.with_suffix(".results"), program)
    with _shown(progress) as show:
        if client is None:
            return native.run(jobs or os.cpu_count() or 1, memory, show)
        _on_cluster(native, program, client, show)
    return native.finish()


def main(arguments: Optional[list[str]] = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m pageyard.sweep", description=__doc__)
    parser.add_argument("sweep", metavar="SWEEP.toml")
    parser.add_argument("-o", "--output", metavar="DIR")
    parser.add_argument("--on", metavar="dask://HOST:PORT", help="scheduler of a Dask cluster")
    parser.add_argument("--jobs", type=int, metavar="N", help="cells at once on this machine")
    parser.add_argument("--progress", action="store_true", help="show a bar (needs tqdm)")
    args = parser.parse_args(arguments)
    if args.jobs is not None and not 1 <= args.jobs <= MAX_JOBS:
        parser.error(f"--jobs {args.jobs}: expected 1 to {MAX_JOBS}")
    if args.jobs is not None and args.on is not None:
        parser.error("--jobs limits cells on this machine; remove it, or --on")
    client = None
    try:
        if args.on is not None:
            if not args.on.startswith("dask://"):
                parser.error(f"--on {args.on}: expected dask://HOST:PORT")
            distributed = need("distributed", "--on", "dask")
            client = distributed.Client("tcp://" + args.on.removeprefix("dask://"))
        print(
            sweep(args.sweep, args.output, jobs=args.jobs, client=client, progress=args.progress),
            end="",
        )
    except (_pageyard.LabError, ImportError, OSError, RuntimeError, ValueError) as e:
        print(f"pageyard.sweep: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; finished cells are kept, the same command continues", file=sys.stderr)
        return 130
    finally:
        if client is not None:
            client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
