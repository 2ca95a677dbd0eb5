//! The table of a drive.

use super::row::{Row, reference};
use super::summary::Drive;
use crate::number::{bytes, count, latency, significant, times};
use crate::table::{Cell, Column, Table, Tone};

/// A column: its heading, and what it shows of a row, if anything.
type Figure = (&'static str, fn(&Row) -> Option<String>);

/// The table of `drive`, with the columns that have something to show.
pub fn table(drive: &Drive) -> Table {
    let policy = |row: &Row| Cell { swatch: Some(row.class.clone()), ..Cell::plain(row.policy.label()) };
    let mut columns = vec![
        Column::new("\npolicy", drive.rows.iter().map(policy)),
        Column::new("\nerases", drive.rows.iter().map(|row| Cell::plain(count(row.erases)))),
    ];
    if let Some(reference) = reference(&drive.rows).filter(|_| drive.rows.len() > 1) {
        let head = if reference.is_none() { "vs\nnone" } else { "vs\nbest" };
        columns.push(Column::new(head, drive.rows.iter().map(ratio)));
    }
    let figures: [Figure; 9] = [
        ("\nWAF", |row| row.waf.map(|waf| format!("{waf:.2}"))),
        ("\nlife", |row| row.lifetime_years.map(life)),
        ("bad\nblocks", |row| (row.bad_blocks > 0).then(|| count(f64::from(row.bad_blocks)))),
        ("write\np99", |row| row.write_p99_s.map(|s| latency(s * 1e6))),
        ("read\np99", |row| row.read_p99_s.map(|s| latency(s * 1e6))),
        ("host\nwaits", |row| Some(latency(row.waited_s * 1e6))),
        ("dis-\ncards", |row| (row.discards > 0.0).then(|| count(row.discards))),
        ("dis-\ncarded", |row| (row.discards > 0.0).then(|| bytes(row.discard_bytes))),
        ("busy\nwith", |row| (row.discards > 0.0).then(|| latency(row.discard_busy_s * 1e6))),
    ];
    for (head, of) in figures {
        if drive.rows.iter().any(|row| of(row).is_some()) {
            let cell = |row| of(row).map_or_else(Cell::nothing, Cell::plain);
            columns.push(Column::new(head, drive.rows.iter().map(cell)));
        }
    }
    Table(columns)
}

/// A lifetime of `years` in the unit that suits it: days or years.
fn life(years: f64) -> String {
    let days = years * 365.25;
    match years {
        1000.0.. => "> 1000 y".to_owned(),
        1.0.. => format!("{} y", significant(years)),
        _ => format!("{} d", significant(days)),
    }
}

/// The erases of `row` in multiples of those of the reference.
fn ratio(row: &Row) -> Cell {
    let Some(ratio) = row.relative_erases.filter(|ratio| ratio.is_finite()) else { return Cell::nothing() };
    let tone = match ratio {
        ..0.95 => Tone::Better,
        0.95..1.05 => Tone::Plain,
        _ => Tone::Worse,
    };
    Cell::toned(times(ratio), tone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetime_is_shown_in_a_suitable_unit() {
        let day = 1.0 / 365.25;
        for (years, text) in [
            (2000.0, "> 1000 y"),
            (12.34, "12.3 y"),
            (1.0, "1.00 y"),
            (100.0 * day, "100 d"),
            (1.5 * day, "1.50 d"),
            (day / 2.0, "0.500 d"),
        ] {
            assert_eq!(life(years), text);
        }
    }
}
