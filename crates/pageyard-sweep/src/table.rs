//! The results as a Parquet file: one row per measurement, in the plan's order.
//!
//! The bytes depend on the results alone, so equal results give equal files.

use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::cell::{CellResult, Work};

const SCHEMA: &str = "message sweep {
    required binary kind (UTF8);
    required binary input (UTF8);
    required binary machine (UTF8);
    required binary policy (UTF8);
    required int64 seed (INTEGER(64, false));
    required binary metric (UTF8);
    required binary unit (UTF8);
    required int64 sample;
    optional double value;
}";

/// Cells whose rows are written at once.
const GROUP: usize = 1 << 12;

/// Returns the Parquet file of these results.
///
/// # Errors
/// Fails if there are more rows than the format holds.
pub fn parquet(results: &[CellResult]) -> Result<Vec<u8>, ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = WriterProperties::builder().set_created_by("pageyard".into()).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    for results in results.chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        let words = |of: &dyn Fn(&CellResult, usize) -> ByteArray| -> Vec<ByteArray> {
            let rows = results.iter().flat_map(|r| (0..r.values.len()).map(move |i| (r, i)));
            rows.map(|(r, i)| of(r, i)).collect()
        };
        let text = |text: &str| ByteArray::from(text);
        write_words(&mut group, &words(&|r, _| text(kind(r))))?;
        write_words(&mut group, &words(&|r, _| text(&r.cell.input())))?;
        write_words(&mut group, &words(&|r, _| text(r.cell.machine())))?;
        write_words(&mut group, &words(&|r, _| text(&r.cell.policy)))?;
        let seeds = results.iter().flat_map(|r| r.values.iter().map(|_| r.cell.seed as i64));
        write_integers(&mut group, &seeds.collect::<Vec<_>>())?;
        write_words(&mut group, &words(&|r, i| text(&r.values[i].metric)))?;
        write_words(&mut group, &words(&|r, i| text(&r.values[i].unit)))?;
        let samples: Vec<i64> = results.iter().flat_map(samples).collect();
        write_integers(&mut group, &samples)?;
        let all = || results.iter().flat_map(|r| r.values.iter().map(|v| v.value));
        let values: Vec<f64> = all().flatten().collect();
        let is_there: Vec<i16> = all().map(|value| value.is_some().into()).collect();
        if let Some(mut column) = group.next_column()? {
            column.typed::<DoubleType>().write_batch(&values, Some(&is_there), None)?;
            column.close()?;
        }
        group.close()?;
    }
    writer.into_inner()
}

fn kind(result: &CellResult) -> &'static str {
    match result.cell.work {
        Work::Replay { .. } => "replay",
        Work::Run { .. } => "run",
    }
}

/// Returns the number of each measurement among those of its metric, from 0.
fn samples(result: &CellResult) -> Vec<i64> {
    let mut seen = std::collections::HashMap::new();
    let number = |value: &crate::cell::Value| {
        let count = seen.entry(value.metric.clone()).or_insert(0);
        *count += 1;
        *count - 1
    };
    result.values.iter().map(number).collect()
}

type Group<'w> = SerializedRowGroupWriter<'w, Vec<u8>>;

fn write_words(group: &mut Group<'_>, words: &[ByteArray]) -> Result<(), ParquetError> {
    if let Some(mut column) = group.next_column()? {
        column.typed::<ByteArrayType>().write_batch(words, None, None)?;
        column.close()?;
    }
    Ok(())
}

fn write_integers(group: &mut Group<'_>, numbers: &[i64]) -> Result<(), ParquetError> {
    if let Some(mut column) = group.next_column()? {
        column.typed::<Int64Type>().write_batch(numbers, None, None)?;
        column.close()?;
    }
    Ok(())
}
