"""A user's code, for the type checker: it is never run."""

import numpy as np
import numpy.typing as npt

import pageyard

result: pageyard.Replay = pageyard.replay("a.pgy", policies=["Base"], knobs={"high": 400}, seeds=range(3))
names: list[str] = result.policies
runs: pageyard.Runs = pageyard.run("micro", machine="desktop", set={"pairs": 4})
same: bool = pageyard.conform(["a.zst"]).identical
times: npt.NDArray[np.uint64] = pageyard.Trace("a.pgy")["time_ns"]
yard = pageyard.PageAllocator("64M", cpus=2)
block: int = yard.alloc(3, flags="KERNEL")
yard.free(block, 3)


def show(stage: str, at: int, total: "int | None") -> None:
    print(stage, at, total)


pageyard.conform("a.zst", progress=show)
