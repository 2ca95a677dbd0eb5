//! The table of a sweep: its rows, their confidence intervals, and its Parquet file.

use std::collections::HashMap;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use trimtab_core::document::sweep::{CellDescription, Figures, Intervals, MeanInterval, SweepRow};
use trimtab_core::table::{TableColumn, Values};

use super::cell::CellResult;
use super::plan::PlannedCell;

/// Student's t for a two-sided 95 % interval, by degrees of freedom from 1 (NIST/SEMATECH e-Handbook of Statistical
/// Methods, 1.3.6.7.2, column 0.975).
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// The same for more degrees of freedom: the value of 30, which is a little too wide.
const T_MORE: f64 = 2.042;

/// The row of a cell with its results; without intervals yet.
pub fn row(planned: &PlannedCell, result: &CellResult) -> SweepRow {
    let error = match result {
        CellResult::Failed(reason) => Some(reason.clone()),
        CellResult::Replayed(_) | CellResult::Synthetic(_) => None,
    };
    SweepRow {
        key: planned.key.clone(),
        cell: planned.description.clone(),
        error,
        figures: result.figures(),
        seeds: 1,
        intervals: None,
    }
}

/// Fills in the intervals of cells that differ in their seed alone.
pub fn set_intervals(rows: &mut [SweepRow]) {
    let mut groups: HashMap<String, Vec<usize>> = HashMap::new();
    for (place, row) in rows.iter().enumerate() {
        let group = CellDescription { seed: 0, ..row.cell.clone() };
        let group = serde_json::to_string(&group).expect("a description is plain data");
        groups.entry(group).or_default().push(place);
    }
    for group in groups.values() {
        let interval = |of: fn(&Figures) -> Option<f64>| {
            let figures = group.iter().filter_map(|place| rows[*place].figures.as_ref());
            mean_interval(&figures.filter_map(of).collect::<Vec<_>>())
        };
        let intervals = Intervals {
            erases: interval(|it| Some(it.per_pass(it.erases))),
            waf: interval(|it| it.waf),
            waited_ns: interval(|it| it.waited_ns.map(|ns| it.per_pass(ns))),
            read_p99_ns: interval(|it| it.read_p99_ns.map(|ns| ns as f64)),
            write_p99_ns: interval(|it| it.write_p99_ns.map(|ns| ns as f64)),
        };
        let seeds = group.iter().filter(|place| rows[**place].figures.is_some()).count();
        for place in group {
            rows[*place].seeds = seeds as u32;
            rows[*place].intervals = (seeds > 1).then_some(intervals);
        }
    }
}

/// The 95 % confidence interval of the mean of `samples` (Student's t); none of fewer than two.
fn mean_interval(samples: &[f64]) -> Option<MeanInterval> {
    let freedom = samples.len().checked_sub(1).filter(|it| *it > 0)?;
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    let variance = samples.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / freedom as f64;
    let t = T.get(freedom - 1).copied().unwrap_or(T_MORE);
    let half = t * (variance / samples.len() as f64).sqrt();
    Some(MeanInterval { low: mean - half, high: mean + half })
}

/// The columns as a Parquet file: all optional, compressed with zstd, one row group. The same columns give the same
/// bytes.
///
/// # Errors
/// The errors of the encoder.
pub fn parquet(columns: &[TableColumn]) -> Result<Vec<u8>, ParquetError> {
    let fields = columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(Type::group_type_builder("schema").with_fields(fields).build()?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(format!("trimtab {}", super::cell::VERSION))
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for column in columns {
        match &column.values {
            Values::Text(values) => {
                let text = |it: &String| ByteArray::from(it.as_bytes().to_vec());
                put::<ByteArrayType, _>(&mut group, values, text)?;
            }
            Values::Count(values) => put::<Int64Type, _>(&mut group, values, |it| whole(*it))?,
            Values::Real(values) => put::<DoubleType, _>(&mut group, values, |it| *it)?,
            Values::Flag(values) => put::<BoolType, _>(&mut group, values, |it| *it)?,
        }
    }
    group.close()?;
    writer.into_inner()
}

/// A count as a signed number; the largest one where it is larger still.
pub fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn field(column: &TableColumn) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical) = match column.values {
        Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Values::Count(_) => (Physical::INT64, None),
        Values::Real(_) => (Physical::DOUBLE, None),
        Values::Flag(_) => (Physical::BOOLEAN, None),
    };
    let builder = Type::primitive_type_builder(column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical);
    builder.build().map(Arc::new)
}

fn put<T: DataType, V>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[Option<V>],
    stored: impl Fn(&V) -> T::T,
) -> Result<(), ParquetError> {
    let present: Vec<T::T> = values.iter().flatten().map(stored).collect();
    let levels: Vec<i16> = values.iter().map(|it| i16::from(it.is_some())).collect();
    let mut column = group.next_column()?.expect("the schema has as many columns");
    column.typed::<T>().write_batch(&present, Some(&levels), None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_that_of_students_t() {
        // Mean 3, deviation sqrt(2.5), t(4) = 2.776: 2.776 * sqrt(2.5 / 5) = 1.9629.
        let interval = mean_interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((interval.low - 1.0371).abs() < 1e-4 && (interval.high - 4.9629).abs() < 1e-4);
        assert_eq!(mean_interval(&[1.0]), None);
        assert_eq!(mean_interval(&[2.0, 2.0]), Some(MeanInterval { low: 2.0, high: 2.0 }));
    }

    #[test]
    fn intervals_join_what_differs_in_its_seed() {
        let of = |policy: &str, seed, erases| SweepRow {
            key: String::new(),
            cell: CellDescription {
                policy: Some(policy.parse().unwrap()),
                seed,
                ..CellDescription::default()
            },
            error: None,
            figures: Some(Figures { erases, ..Figures::default() }),
            seeds: 1,
            intervals: None,
        };
        let mut rows = vec![of("none", 0, 10), of("smart", 0, 7), of("none", 1, 20)];
        set_intervals(&mut rows);
        assert_eq!(rows.iter().map(|row| row.seeds).collect::<Vec<_>>(), [2, 1, 2]);
        let interval = rows[0].intervals.unwrap().erases.unwrap();
        assert!((f64::midpoint(interval.low, interval.high) - 15.0).abs() < 1e-9);
        assert_eq!((rows[2].intervals, rows[1].intervals), (rows[0].intervals, None));

        let failed = SweepRow { error: Some("too small".to_owned()), figures: None, ..of("none", 1, 0) };
        let mut rows = vec![of("none", 0, 10), failed];
        set_intervals(&mut rows);
        assert_eq!(rows.iter().map(|row| row.seeds).collect::<Vec<_>>(), [1, 1]);
        assert_eq!((rows[0].intervals, rows[1].intervals), (None, None));
    }

    #[test]
    fn intervals_are_of_one_pass() {
        let of = |seed, passes, erases| SweepRow {
            key: String::new(),
            cell: CellDescription { seed, ..CellDescription::default() },
            error: None,
            figures: Some(Figures {
                erases,
                passes: Some(passes),
                waited_ns: Some(erases * 10),
                ..Figures::default()
            }),
            seeds: 1,
            intervals: None,
        };
        let mut rows = vec![of(0, 6, 600), of(1, 8, 800)];
        set_intervals(&mut rows);
        let Intervals { erases, waited_ns, .. } = rows[0].intervals.unwrap();
        assert_eq!(erases, Some(MeanInterval { low: 100.0, high: 100.0 }));
        assert_eq!(waited_ns, Some(MeanInterval { low: 1000.0, high: 1000.0 }));
    }
}
