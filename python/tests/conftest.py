"""Shared fixtures. `scripts/python.sh` sets PAGEYARD_SAMPLES."""

import os
import pathlib
import signal

import matplotlib
import pytest

matplotlib.use("Agg")
# A shell starts background jobs with SIGINT ignored, and Python then installs no handler.
signal.signal(signal.SIGINT, signal.default_int_handler)

SAMPLES = pathlib.Path(
    os.environ.get("PAGEYARD_SAMPLES", pathlib.Path(__file__).parents[2] / "samples")
)


@pytest.fixture(scope="session")
def kbuild() -> pathlib.Path:
    return SAMPLES / "kbuild.pgy"


@pytest.fixture(scope="session")
def recordings() -> list[pathlib.Path]:
    return sorted((SAMPLES / "oracle").glob("*.zst"))


@pytest.fixture
def small(tmp_path: pathlib.Path) -> pathlib.Path:
    """A trace of eight events, one of each kind and one failed request, and a mark."""
    lines = [
        "cc1-10 [000] 1.000000: mm_page_alloc_zone_locked: page=0x1 pfn=0x100 order=0 migratetype=1 percpu_refill=1",
        "cc1-10 [000] 1.000001: mm_page_alloc: page=0x1 pfn=0x100 order=0 migratetype=1 gfp_flags=GFP_KERNEL",
        "bash-11 [001] 1.000002: mm_page_alloc_extfrag: page=0x1 pfn=0x200 alloc_order=0 fallback_order=9 pageblock_order=9 alloc_migratetype=0 fallback_migratetype=1 fragmenting=0 change_ownership=1",
        "bash-11 [001] 1.000003: mm_page_alloc: page=(nil) pfn=0x0 order=4 migratetype=0 gfp_flags=GFP_KERNEL",
        "sh-12 [001] 1.000004: print: WORKLOAD_START",
        "cc1-13 [000] 1.000005: mm_page_free: page=0x1 pfn=0x100 order=0",
        "cc1-13 [000] 1.000006: mm_page_free_batched: page=0x1 pfn=0x100 order=0",
        "cc1-13 [000] 1.000007: mm_page_pcpu_drain: page=0x1 pfn=0x100 order=0 migratetype=1",
    ]
    path = tmp_path / "small.txt"
    path.write_text("\n".join(lines) + "\n")
    return path
