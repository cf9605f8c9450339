"""Traces as columns of NumPy and Arrow."""

import gc
import pathlib

import numpy as np
import polars
import pyarrow
import pytest

import pageyard


def test_columns_hold_every_field(small: pathlib.Path) -> None:
    trace = pageyard.Trace(small)
    kinds = trace.words("kind")
    assert [kinds[k] for k in trace["kind"]] == [
        "zone_locked", "alloc", "extfrag", "alloc", "free", "free_batched", "drain",
    ]
    none, no_pfn = pageyard.Trace.NONE, pageyard.Trace.NO_PFN
    assert trace["time_ns"].tolist() == [1_000_000_000 + 1000 * n for n in (0, 1, 2, 3, 5, 6, 7)]
    assert trace["cpu"].tolist() == [0, 0, 1, 1, 0, 0, 0]
    assert trace["pid"].tolist() == [10, 10, 11, 11, 13, 13, 13]
    assert trace["pfn"].tolist() == [0x100, 0x100, 0x200, no_pfn, 0x100, 0x100, 0x100]
    assert trace["order"].tolist() == [0, 0, 0, 4, 0, 0, 0]
    assert trace["migratetype"].tolist() == [1, 1, 0, 0, none, none, 1]
    assert trace["found_order"].tolist() == [none, none, 9, none, none, none, none]
    assert trace["found_type"].tolist() == [none, none, 1, none, none, none, none]
    assert trace["flag"].tolist() == [1, none, 1, none, none, none, none]
    # Two tasks of one name share a word.
    assert trace.words("comm") == ["cc1", "bash"]
    assert trace["comm"].tolist() == [0, 0, 1, 1, 0, 0, 0]
    assert trace.marks == [(1_000_004_000, 1, "WORKLOAD_START")]
    assert len(trace) == 7 and trace.lost == 0 and trace.malformed == (0, [])


def test_numpy_reads_the_memory_of_the_trace(small: pathlib.Path) -> None:
    trace = pageyard.Trace(small)
    for name in trace.columns:
        first, second = trace[name], trace[name]
        assert np.shares_memory(first, second), name
        assert not first.flags.writeable, name
        assert not first.flags.owndata, name
        with pytest.raises(ValueError, match="read-only"):
            first[0] = 1


def test_arrow_reads_the_memory_of_the_trace(small: pathlib.Path) -> None:
    trace = pageyard.Trace(small)
    batch = trace.to_arrow()
    for name in trace.columns:
        column = batch.column(name)
        column = column.indices if pyarrow.types.is_dictionary(column.type) else column
        assert column.buffers()[1].address == trace[name].ctypes.data, name
        batch.validate(full=True)


def test_arrays_outlive_their_trace(kbuild: pathlib.Path) -> None:
    trace = pageyard.Trace(kbuild)
    pfn, batch = trace["pfn"], trace.to_arrow()
    before = int(pfn.sum(dtype=np.uint64))
    del trace
    gc.collect()
    # Memory that was freed would be reused by these.
    others = [np.full(len(pfn), n, dtype=np.uint64) for n in range(8)]
    assert int(pfn.sum(dtype=np.uint64)) == before
    assert np.array_equal(batch.column("pfn").fill_null(pageyard.Trace.NO_PFN).to_numpy(), pfn)
    assert len(others) == 8


def test_fields_that_an_event_lacks_are_null(small: pathlib.Path) -> None:
    frame = pageyard.Trace(small).to_pandas()
    assert frame["pfn"].isna().tolist() == [False, False, False, True, False, False, False]
    assert frame["migratetype"].isna().sum() == 2
    assert frame["comm"].tolist() == ["cc1", "cc1", "bash", "bash", "cc1", "cc1", "cc1"]
    polar = polars.DataFrame(pageyard.Trace(small))
    assert polar["pfn"].null_count() == 1
    assert polar["kind"].cast(polars.String).to_list()[:2] == ["zone_locked", "alloc"]
    assert pageyard.Trace(small).to_polars().equals(polar)


def test_the_sample_has_the_events_that_the_program_counts(kbuild: pathlib.Path) -> None:
    trace = pageyard.Trace(kbuild)
    replayed = pageyard.replay(kbuild, policies="Base", seeds=1)
    assert len(trace) == replayed.data["reading"]["events"]
    assert (np.diff(trace["time_ns"].astype(np.int64)) >= 0).all()


def test_errors_name_the_fault(tmp_path: pathlib.Path, small: pathlib.Path) -> None:
    with pytest.raises(pageyard.LabError, match="nowhere.pgy.*[Nn]o such file"):
        pageyard.Trace(tmp_path / "nowhere.pgy")
    with pytest.raises(KeyError, match="expected one of time_ns, cpu"):
        pageyard.Trace(small)["address"]
    with pytest.raises(KeyError, match="has numbers"):
        pageyard.Trace(small).words("pfn")
    damaged = tmp_path / "damaged.txt"
    damaged.write_text(small.read_text() + "x-1 [000] 2.0: mm_page_free: page=1 pfn=oops order=0\n")
    with pytest.raises(pageyard.LabError, match="line 9"):
        pageyard.Trace(damaged)
    lenient = pageyard.Trace(damaged, lenient=True)
    assert len(lenient) == 7 and lenient.malformed[0] == 1 and "line 9" in lenient.malformed[1][0]
