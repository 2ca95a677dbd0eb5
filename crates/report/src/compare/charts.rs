//! The charts of a comparison.

use trimtab_core::document::{CompareDocument, Phase, Run};
use trimtab_core::stats::SizeHistogram;
use trimtab_core::units::Bytes;

use super::summary::{Clock, FileSystem, Row, Summary, runs_of};
use crate::chart::{BarChart, Series};
use crate::spread::Spread;

/// The trade-off of all file systems: time to delete beside speed of the write after it, or the
/// time of the whole workload where it has no such phases.
pub fn overview(summary: &Summary) -> String {
    let clock = summary.clock.name();
    let chart = |title: &str, y: String, figure: fn(&Row) -> Option<Spread>| {
        let value =
            |fs: &FileSystem, policy| fs.rows.iter().find(|row| row.policy == policy).and_then(figure);
        let mut policies: Vec<_> =
            summary.file_systems.iter().flat_map(|fs| &fs.rows).map(|row| row.policy).collect();
        policies.sort_unstable();
        policies.dedup();
        let series = policies.iter().map(|policy| Series {
            name: policy.to_string(),
            class: policy.to_string(),
            values: summary.file_systems.iter().map(|fs| value(fs, *policy)).collect(),
        });
        BarChart {
            title: title.to_owned(),
            x: "file system".to_owned(),
            y,
            groups: summary.file_systems.iter().map(|fs| fs.fs.clone()).collect(),
            series: series.collect(),
        }
        .figure()
    };
    let delete = chart("Time to delete: less is better", format!("delete ({clock}, s)"), |row| row.delete_s);
    let write = chart("Throughput after delete: more is better", format!("write ({clock}, MiB/s)"), |row| {
        row.write_mib_s
    });
    if delete.is_empty() && write.is_empty() {
        let title = "Time of the workload without trims: less is better";
        return chart(title, format!("time ({clock}, s)"), |row| row.wait_s);
    }
    delete + &write
}

/// Time, erases and write amplification by phase, and discards by size on one file system.
pub fn details(document: &CompareDocument, fs: &FileSystem, clock: Clock) -> String {
    let phases = phase_names(document, fs);
    let by_phase = |title: &str, y: String, figure: &dyn Fn(&Phase) -> Option<f64>| {
        BarChart {
            title: format!("{title}, {}", fs.fs),
            x: "phase".to_owned(),
            y,
            groups: phases.iter().map(|name| (*name).to_owned()).collect(),
            series: series(document, fs, |runs| {
                let named =
                    |run: &&Run, name| run.phases.iter().find(|phase| phase.name == name).and_then(figure);
                phases
                    .iter()
                    .map(|name| Spread::of(runs.iter().filter_map(|run| named(run, *name))))
                    .collect()
            }),
        }
        .figure()
    };
    let time =
        by_phase("Time by phase", format!("time ({}, s)", clock.name()), &|phase| clock.seconds(phase));
    let erases = by_phase("Erases by phase", "erase-block erases".to_owned(), &|phase| {
        phase.erases.map(|erases| erases as f64)
    });
    let waf =
        by_phase("Write amplification by phase", "WAF, flash pages / host pages".to_owned(), &|phase| {
            phase.waf
        });
    time + &erases + &discard_sizes(document, fs) + &waf
}

/// The names of the phases that ran on `fs`, in the order they first ran.
pub fn phase_names<'a>(document: &'a CompareDocument, fs: &FileSystem) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for phase in document.runs.iter().filter(|run| run.fs == fs.fs).flat_map(|run| &run.phases) {
        if !names.contains(&phase.name.as_str()) {
            names.push(&phase.name);
        }
    }
    names
}

fn discard_sizes(document: &CompareDocument, fs: &FileSystem) -> String {
    let mut sizes: Vec<Bytes> = document
        .runs
        .iter()
        .filter(|run| run.fs == fs.fs)
        .flat_map(|run| &run.phases)
        .flat_map(|phase| phase.discard_histogram.buckets().map(|bucket| bucket.from_bytes))
        .collect();
    sizes.sort_unstable();
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else { return String::new() };
    let buckets: Vec<Bytes> = (first.0.ilog2()..=last.0.ilog2()).map(|power| Bytes(1 << power)).collect();
    let in_bucket = |histogram: &SizeHistogram, size| {
        histogram
            .buckets()
            .filter(|bucket| bucket.from_bytes == size)
            .map(|bucket| bucket.count as f64)
            .sum::<f64>()
    };
    let in_run = |run: &Run, size| {
        run.phases.iter().map(|phase| in_bucket(&phase.discard_histogram, size)).sum::<f64>()
    };
    BarChart {
        title: format!("Discards by size, all phases, {}", fs.fs),
        x: "size of a discard, each step twice the one before (log scale)".to_owned(),
        y: "discards in a run".to_owned(),
        groups: buckets.iter().map(Bytes::to_string).collect(),
        series: series(document, fs, |runs| {
            buckets.iter().map(|size| Spread::of(runs.iter().map(|run| in_run(run, *size)))).collect()
        }),
    }
    .figure()
}

/// One series a policy that ran on `fs`, with the values that its runs have.
fn series(
    document: &CompareDocument,
    fs: &FileSystem,
    values: impl Fn(&[&Run]) -> Vec<Option<Spread>>,
) -> Vec<Series> {
    let of = |row: &Row| Series {
        name: row.policy.to_string(),
        class: row.policy.to_string(),
        values: values(&runs_of(document, &fs.fs, row.policy)),
    };
    fs.rows.iter().map(of).collect()
}
