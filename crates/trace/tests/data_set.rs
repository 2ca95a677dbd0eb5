//! The published traces in `traces/`: their checksums, and what their data card says of them.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use trimtab_core::trace::{EventKind, Summary, TraceHeader};
use trimtab_core::units::{Bytes, Nanos};
use trimtab_trace::{Columns, open};

/// The directory of the data set.
fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces")
}

/// The words of each line of `traces/recipes` in the set `small`: set, name, file system, size, workload and seed.
fn recipes() -> Result<Vec<[String; 6]>, Box<dyn Error>> {
    let text = fs::read_to_string(directory().join("recipes"))?;
    let lines = text.lines().filter(|line| line.starts_with("small "));
    let words = lines.map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    words.map(|words| words.try_into().map_err(|words| format!("not a recipe: {words:?}").into())).collect()
}

/// A trace's header, totals, and time from the first event to the last.
fn read(path: &Path) -> Result<(TraceHeader, Summary, Nanos), Box<dyn Error>> {
    let mut reader = open(path, None, Columns::All)?;
    let (mut summary, mut times, mut batch) = (Summary::default(), Vec::new(), Vec::new());
    loop {
        reader.next_batch(&mut batch)?;
        let [first, ..] = &batch[..] else { break };
        times.extend([first.at, batch[batch.len() - 1].at]);
        batch.iter().for_each(|event| summary.record(event));
    }
    let span = times.last().zip(times.first()).map_or(0, |(last, first)| last.0 - first.0);
    Ok((reader.header().clone(), summary, Nanos(span)))
}

#[test]
fn checksums_cover_every_trace() -> Result<(), Box<dyn Error>> {
    let sums = fs::read_to_string(directory().join("SHA256SUMS"))?;
    let mut named: Vec<_> = sums.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    let mut expected: Vec<_> =
        recipes()?.iter().map(|[set, name, ..]| format!("{set}/{name}.parquet")).collect();
    named.sort_unstable();
    expected.sort_unstable();
    assert_eq!(named, expected);

    let check = Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(directory())
        .output()?;
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    Ok(())
}

#[test]
fn data_card_has_the_figures_of_every_trace() -> Result<(), Box<dyn Error>> {
    let card = fs::read_to_string(directory().join("README.md"))?;
    let mut table = String::new();
    for [set, name, file_system, size, workload, seed] in recipes()? {
        let path = directory().join(&set).join(&name).with_extension("parquet");
        let (header, summary, span) = read(&path)?;
        let bytes = |kind| summary.of(kind).bytes;
        assert_eq!(header.lost, 0, "{name}");
        assert_eq!(header.file_systems[0].kind, file_system, "{name}");
        assert_eq!(header.devices[0].size, size.parse::<Bytes>()?, "{name}");
        let command = header.command.join(" ");
        assert!(command.ends_with(&format!(" {workload} /mnt {seed}")), "{name}: {command}");
        assert!(bytes(EventKind::Free).0 > 0, "{name} frees nothing");
        writeln!(
            table,
            "| `{name}` | {file_system}, {} MiB | {} | {} | {} | {:.0} | {} |",
            size.parse::<Bytes>()?.0 >> 20,
            bytes(EventKind::Write),
            bytes(EventKind::Free),
            bytes(EventKind::Discard),
            span.seconds(),
            summary.total()
        )?;
    }
    assert!(card.contains(&table), "traces/README.md should have this table:\n{table}");
    Ok(())
}
