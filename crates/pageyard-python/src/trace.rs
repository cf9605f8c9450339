//! A trace's page events as columns that NumPy and Arrow read without copies.
//!
//! Invariant: a column never changes and never moves once [`Trace::open`] has returned. Arrow's
//! buffers are reference counted, and whatever shows one to Python holds a reference: a [`Column`]
//! for NumPy, whose array keeps the `Column` as its base; the exported structure for Arrow, which
//! its consumer releases. The memory lives as long as its last reader, not as long as the `Trace`.
//! `python/tests/test_trace.py` drops the trace first and reads then.

use std::collections::HashMap;
use std::path::PathBuf;

use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field};
use pageyard_machine::Stop;
use pageyard_trace::{Event, Kind, Options, Record, TraceError, TraceReader};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::error::lab;
use crate::wait::{Told, wait};

/// Names of the kinds of events, by their number in the column `kind`.
const KINDS: [&str; 6] = ["alloc", "free", "free_batched", "zone_locked", "drain", "extfrag"];

/// Values of fields that an event does not have. NumPy sees them; in Arrow they are null.
const NO_PFN: u64 = u64::MAX;
const NO_BYTE: u8 = u8::MAX;
const NO_GFP: u32 = u32::MAX;

/// The columns while the trace is read.
#[derive(Default)]
struct Columns {
    time: Vec<u64>,
    cpu: Vec<u16>,
    task: Vec<u32>,
    kind: Vec<u8>,
    pfn: Vec<u64>,
    order: Vec<u8>,
    migratetype: Vec<u8>,
    gfp: Vec<u32>,
    found_order: Vec<u8>,
    found_type: Vec<u8>,
    flag: Vec<u8>,
}

/// The fields of an event beyond time and place, where it has them.
struct Fields {
    kind: u8,
    pfn: u64,
    order: u8,
    migratetype: u8,
    gfp: u32,
    found_order: u8,
    found_type: u8,
    flag: u8,
}

impl Fields {
    fn of(kind: Kind) -> Fields {
        let none = Fields {
            kind: 0,
            pfn: NO_PFN,
            order: 0,
            migratetype: NO_BYTE,
            gfp: NO_GFP,
            found_order: NO_BYTE,
            found_type: NO_BYTE,
            flag: NO_BYTE,
        };
        match kind {
            Kind::Alloc { pfn, order, migratetype, gfp } => {
                Fields { kind: 0, pfn: pfn.unwrap_or(NO_PFN), order, migratetype, gfp, ..none }
            }
            Kind::Free { pfn, order } => Fields { kind: 1, pfn, order, ..none },
            Kind::FreeBatched { pfn } => Fields { kind: 2, pfn, ..none },
            Kind::ZoneLocked { pfn, order, migratetype, refill } => {
                let (pfn, flag) = (pfn.unwrap_or(NO_PFN), refill.into());
                Fields { kind: 3, pfn, order, migratetype, flag, ..none }
            }
            Kind::Drain { pfn, order, migratetype } => {
                Fields { kind: 4, pfn, order, migratetype, ..none }
            }
            Kind::ExtFrag {
                pfn,
                alloc_order,
                fallback_order,
                alloc_type,
                fallback_type,
                change_ownership,
            } => Fields {
                kind: 5,
                pfn,
                order: alloc_order,
                migratetype: alloc_type,
                found_order: fallback_order,
                found_type: fallback_type,
                flag: change_ownership.into(),
                ..none
            },
        }
    }
}

impl Columns {
    fn push(&mut self, event: &Event) {
        let f = Fields::of(event.kind);
        self.time.push(event.t_ns);
        self.cpu.push(event.cpu);
        self.task.push(event.task);
        self.kind.push(f.kind);
        self.pfn.push(f.pfn);
        self.order.push(f.order);
        self.migratetype.push(f.migratetype);
        self.gfp.push(f.gfp);
        self.found_order.push(f.found_order);
        self.found_type.push(f.found_type);
        self.flag.push(f.flag);
    }

    /// Moves the columns into a table: an array of structures. `tasks` has the process and name of
    /// each task.
    fn table(self, tasks: &[(u32, String)]) -> Result<ArrayData, ArrowError> {
        // A name once, since categories of pandas are unique; a trace has a name per thread.
        let mut names: Vec<&str> = Vec::new();
        let mut number = HashMap::new();
        for (_, name) in tasks {
            number.entry(name.as_str()).or_insert_with(|| {
                names.push(name);
                names.len() as u32 - 1
            });
        }
        let pid: Vec<u32> = self.task.iter().map(|&t| tasks[t as usize].0).collect();
        let name: Vec<u32> =
            self.task.iter().map(|&t| number[tasks[t as usize].1.as_str()]).collect();
        use DataType::{UInt8, UInt16, UInt32, UInt64};
        let rows = self.time.len();
        let columns = [
            ("time_ns", numbers(UInt64, self.time, None)?),
            ("cpu", numbers(UInt16, self.cpu, None)?),
            ("pid", numbers(UInt32, pid, None)?),
            ("comm", words(UInt32, name, &names)?),
            ("kind", words(UInt8, self.kind, &KINDS)?),
            ("pfn", numbers(UInt64, self.pfn, Some(NO_PFN))?),
            ("order", numbers(UInt8, self.order, None)?),
            ("migratetype", numbers(UInt8, self.migratetype, Some(NO_BYTE))?),
            ("gfp", numbers(UInt32, self.gfp, Some(NO_GFP))?),
            ("found_order", numbers(UInt8, self.found_order, Some(NO_BYTE))?),
            ("found_type", numbers(UInt8, self.found_type, Some(NO_BYTE))?),
            ("flag", numbers(UInt8, self.flag, Some(NO_BYTE))?),
        ];
        let field = |(name, column): &(&str, ArrayData)| {
            Field::new(*name, column.data_type().clone(), column.nulls().is_some())
        };
        let fields = columns.iter().map(field).collect();
        let columns = columns.into_iter().map(|(_, column)| column).collect();
        ArrayData::try_new(DataType::Struct(fields), rows, None, 0, Vec::new(), columns)
    }
}

/// Moves values into a column, in which `none` is null.
fn numbers<T: ArrowNativeType>(
    kind: DataType,
    values: Vec<T>,
    none: Option<T>,
) -> Result<ArrayData, ArrowError> {
    let nulls = none.map(|none| {
        let valid: BooleanBuffer = values.iter().map(|v| *v != none).collect();
        NullBuffer::new(valid).into_inner().into_inner()
    });
    let rows = values.len();
    ArrayData::try_new(kind, rows, nulls, 0, vec![Buffer::from_vec(values)], Vec::new())
}

/// Moves numbers of words into a column of words.
fn words<T: ArrowNativeType>(
    key: DataType,
    numbers: Vec<T>,
    words: &[&str],
) -> Result<ArrayData, ArrowError> {
    let mut ends = vec![0i32];
    let mut text = String::new();
    for word in words {
        text.push_str(word);
        let end = i32::try_from(text.len());
        ends.push(end.map_err(|_| ArrowError::OffsetOverflowError(text.len()))?);
    }
    let buffers = vec![Buffer::from_vec(ends), Buffer::from_vec(text.into_bytes())];
    let words = ArrayData::try_new(DataType::Utf8, words.len(), None, 0, buffers, Vec::new())?;
    let kind = DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8));
    let rows = numbers.len();
    ArrayData::try_new(kind, rows, None, 0, vec![Buffer::from_vec(numbers)], vec![words])
}

/// What a reader found besides page events.
struct Found {
    table: ArrayData,
    marks: Vec<(u64, u16, String)>,
    other_events: u64,
    lost: u64,
    malformed: Vec<String>,
    malformed_count: u64,
}

fn read(
    path: PathBuf,
    lenient: bool,
    stop: &Stop,
    told: &Told,
) -> Result<Option<Found>, TraceError> {
    let mut reader = TraceReader::open(path, Options { lenient })?;
    let mut columns = Columns::default();
    let mut marks = Vec::new();
    let mut other_events = 0;
    let mut group = Vec::new();
    while reader.next_chunk(&mut group)? {
        if stop.is_requested() {
            return Ok(None);
        }
        for record in group.drain(..) {
            match record {
                Record::Event(event) => columns.push(&event),
                Record::Compaction { .. } => other_events += 1,
                Record::Mark { t_ns, cpu, text } => marks.push((t_ns, cpu, text)),
            }
        }
        let at = reader.progress();
        told.set("read", at.consumed, at.total);
    }
    let tasks = reader.tasks();
    let count = tasks.len();
    let tasks: Vec<(u32, String)> =
        (0..count as u32).map(|t| (tasks[t].pid, tasks[t].comm.clone())).collect();
    let summary = reader.summary();
    Ok(Some(Found {
        table: columns.table(&tasks).expect("all columns have one length, and names fit"),
        marks,
        other_events,
        lost: summary.lost,
        malformed: summary.malformed.first.iter().map(ToString::to_string).collect(),
        malformed_count: summary.malformed.count + summary.malformed_at_import,
    }))
}

/// The page events of a recorded trace, as columns.
#[pyclass(frozen)]
pub(crate) struct Trace {
    name: String,
    found: Found,
}

#[pymethods]
impl Trace {
    /// Reads a trace.
    #[staticmethod]
    #[pyo3(signature = (path, *, lenient, progress))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        lenient: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Trace> {
        let stop = Stop::default();
        let stopped = stop.clone();
        let name = path.to_string_lossy().into_owned();
        let found = wait(py, progress, &stop, move |told| read(path, lenient, &stopped, told))?;
        let found = found.map_err(lab)?.ok_or_else(|| lab("stopped on request"))?;
        Ok(Trace { name, found })
    }

    /// The trace's path.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The names of the columns, in order.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let DataType::Struct(fields) = self.found.table.data_type() else { return Vec::new() };
        fields.iter().map(|f| f.name().clone()).collect()
    }

    /// The marks of the recording script: time, CPU, text.
    #[getter]
    fn marks(&self) -> Vec<(u64, u16, String)> {
        self.found.marks.clone()
    }

    /// Number of events of compaction and reclaim, which have no rows here.
    #[getter]
    fn other_events(&self) -> u64 {
        self.found.other_events
    }

    /// Number of events that the recorder lost.
    #[getter]
    fn lost(&self) -> u64 {
        self.found.lost
    }

    /// Number of malformed lines or chunks of a lenient reading, and the first few.
    #[getter]
    fn malformed(&self) -> (u64, Vec<String>) {
        (self.found.malformed_count, self.found.malformed.clone())
    }

    fn __len__(&self) -> usize {
        self.found.table.len()
    }

    /// Returns a column, for NumPy.
    fn column(&self, name: &str) -> PyResult<Column> {
        let columns = self.columns();
        let at = columns.iter().position(|column| column == name).ok_or_else(|| {
            PyKeyError::new_err(format!("column {name:?}: expected one of {}", columns.join(", ")))
        })?;
        Ok(Column(self.found.table.child_data()[at].clone()))
    }

    /// Arrow's PyCapsule interface: the table's schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema(py, self.found.table.data_type())
    }

    /// Arrow's PyCapsule interface: the table as one array of structures.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // A producer may ignore the request: the consumer then casts.
        drop(requested_schema);
        array(py, &self.found.table)
    }

    fn __repr__(&self) -> String {
        let name = pageyard_trace::printable(&self.name);
        format!("<Trace {name}: {} page events>", self.found.table.len())
    }
}

fn schema<'py>(py: Python<'py>, of: &DataType) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(of).map_err(lab)?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

/// Exports an array. The structure holds references to the buffers until the consumer releases it.
fn array<'py>(
    py: Python<'py>,
    of: &ArrayData,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let exported = FFI_ArrowArray::new(of);
    Ok((schema(py, of.data_type())?, PyCapsule::new_with_value(py, exported, c"arrow_array")?))
}

/// One column of a trace. NumPy and Arrow read it without a copy.
#[pyclass(frozen)]
pub(crate) struct Column(ArrayData);

impl Column {
    /// Returns the address of the values, which for a column of words are their numbers, and their
    /// type as NumPy writes it.
    fn values(&self) -> (usize, &'static str) {
        let kind = match self.0.data_type() {
            DataType::Dictionary(key, _) => key,
            kind => kind,
        };
        let width = match (kind, cfg!(target_endian = "big")) {
            (DataType::UInt8, _) => "|u1",
            (DataType::UInt16, false) => "<u2",
            (DataType::UInt32, false) => "<u4",
            (DataType::UInt64, false) => "<u8",
            (DataType::UInt16, true) => ">u2",
            (DataType::UInt32, true) => ">u4",
            (_, _) => ">u8",
        };
        // No column is a slice of another: the values begin at the buffer's start.
        (self.0.buffers()[0].as_ptr() as usize, width)
    }
}

#[pymethods]
impl Column {
    /// The words of a column of words, by their number; `None` for a column of numbers.
    #[getter]
    fn words(&self) -> Option<Vec<String>> {
        let words = self.0.child_data().first()?;
        let (ends, text) = (words.buffer::<i32>(0), words.buffers()[1].as_slice());
        let word = |ends: &[i32]| {
            String::from_utf8_lossy(&text[ends[0] as usize..ends[1] as usize]).into_owned()
        };
        Some(ends.windows(2).map(word).collect())
    }

    /// NumPy's array interface. NumPy keeps this object for as long as it uses the address.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (address, kind) = self.values();
        let read_only = true;
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", kind)?;
        interface.set_item("shape", (self.0.len(),))?;
        interface.set_item("data", (address, read_only))?;
        Ok(interface)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Arrow's PyCapsule interface: the type.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema(py, self.0.data_type())
    }

    /// Arrow's PyCapsule interface: the column.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema);
        array(py, &self.0)
    }
}
