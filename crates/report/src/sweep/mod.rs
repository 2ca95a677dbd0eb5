//! Sweeps: the policies of every trace and drive beside each other, and those that no other one beats.

mod front;
mod panel;
mod policies;
mod text;
mod workloads;

use trimtab_core::document::sweep::{SweepDocument, SweepRow};
use trimtab_core::shell::command_line;

use crate::html::{Section, escape, page};

pub use front::{Point, front, groups};
pub use text::text;

/// A whole HTML page about `document`, which needs no other file.
pub fn html(document: &SweepDocument) -> String {
    page(&[section(document)])
}

/// The section of `document`: a small chart for each trace, drive and option, with the Pareto front among its
/// policies; one for each synthetic workload; and the cells that failed.
pub fn section(document: &SweepDocument) -> Section {
    let groups = groups(document);
    let panels: String = groups.iter().map(policies::figure).collect();
    let workloads = workloads::figures(document);
    let failed = failures(document);
    let (title, front) = if groups.is_empty() {
        ("Sweep: write amplification of every workload", "")
    } else {
        (
            "Sweep: erases and waits of every policy",
            " A policy is on the Pareto front (joined by the line) if no other one erases less without more waits; \
             the bound ideal, which no machine can use, is left out of it. \
             Axes begin at zero only where the policies are far apart.",
        )
    };
    let body = format!(
        "<p class=\"soft\">{} of {} cells have results. Counts and times are of one pass, and all times are <strong>model time</strong>; bars are 95 % confidence intervals \
         over seeds.{front}</p>\n\
         <div class=\"charts\">\n{panels}{workloads}</div>\n{failed}<h2>Method</h2>\n<pre>{}</pre>\n",
        document.rows.iter().filter(|row| row.figures.is_some()).count(),
        document.cells,
        escape(&command_line(&document.command)),
    );
    Section { title: title.to_owned(), body }
}

/// The cells that failed, as a list; empty if none did.
fn failures(document: &SweepDocument) -> String {
    let item = |(cells, reason): (String, &str)| format!("<li>{}: {}</li>\n", escape(&cells), escape(reason));
    let items: String = failed(document).into_iter().map(item).collect();
    if items.is_empty() { items } else { format!("<h2>Failed cells</h2>\n<ul>\n{items}</ul>\n") }
}

/// The cells that failed, those with the same reason together, each with it.
fn failed(document: &SweepDocument) -> Vec<(String, &str)> {
    let mut reasons: Vec<(&str, Vec<&SweepRow>)> = Vec::new();
    for row in &document.rows {
        let Some(reason) = row.error.as_deref() else { continue };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, rows)) => rows.push(row),
            None => reasons.push((reason, vec![row])),
        }
    }
    reasons.into_iter().map(|(reason, rows)| (together(&rows), reason)).collect()
}

/// The name of a cell, or the number of several and the name of the first.
fn together(rows: &[&SweepRow]) -> String {
    let (cells, first) = (rows.len(), front::name(&rows[0].cell));
    if cells == 1 { first } else { format!("{cells} cells, the first of them {first}") }
}

#[cfg(test)]
mod tests {
    use trimtab_core::document::sweep::{CellDescription, Figures, SWEEP_SCHEMA};

    use super::*;

    fn row(profile: &str, policy: &str, outcome: Result<(u64, u64), &str>) -> SweepRow {
        let figures = |(erases, seconds)| Figures {
            erases,
            waited_ns: Some(seconds * 1_000_000_000),
            ..Figures::default()
        };
        SweepRow {
            key: String::new(),
            cell: CellDescription {
                trace: Some("mail".to_owned()),
                profile: Some(profile.to_owned()),
                policy: Some(policy.parse().unwrap()),
                ..CellDescription::default()
            },
            error: outcome.err().map(str::to_owned),
            figures: outcome.ok().map(figures),
            seeds: 1,
            intervals: None,
        }
    }

    fn page_of(rows: Vec<SweepRow>) -> String {
        html(&SweepDocument {
            schema: SWEEP_SCHEMA.to_owned(),
            version: String::new(),
            command: Vec::new(),
            cells: rows.len(),
            rows,
            stopped: None,
        })
    }

    #[test]
    fn workloads_have_a_chart_of_write_amplification() {
        let row = |workload: &str, gc: &str, over_provisioning: f64, waf: Option<f64>| SweepRow {
            cell: CellDescription {
                workload: Some(workload.to_owned()),
                gc: Some(gc.to_owned()),
                streams: Some(1),
                over_provisioning: Some(over_provisioning),
                ..CellDescription::default()
            },
            figures: Some(Figures { waf, ..Figures::default() }),
            ..row("", "none", Ok((0, 0)))
        };
        let page = page_of(vec![
            row("uniform", "greedy", 0.25, Some(2.0)),
            row("uniform", "greedy", 0.125, Some(4.5)),
            row("uniform", "fifo", 0.25, Some(2.5)),
            row("hotcold:0.9/0.1", "greedy", 0.25, None),
        ]);
        assert!(page.contains("<figcaption>uniform</figcaption>"), "{page}");
        assert_eq!(page.matches("<figcaption>").count(), 1, "no figures, no chart");
        assert!(page.contains("greedy: write amplification 4.50 at 12.5 % over-provisioning"), "{page}");
        assert_eq!(page.matches("<polyline class=\"line s").count(), 2, "a line for each order of cleaning");
        assert!(!page.contains("Pareto"), "workloads have no policies");
    }

    #[test]
    fn terminal_has_a_table_for_each_trace_and_drive() {
        let document = SweepDocument {
            schema: SWEEP_SCHEMA.to_owned(),
            version: String::new(),
            command: Vec::new(),
            cells: 3,
            rows: vec![
                row("fast", "none", Ok((30, 4))),
                row("fast", "smart", Ok((20, 4))),
                row("fast", "online", Err("no")),
            ],
            stopped: None,
        };
        let text = text(&document, false);
        for part in
            ["2 of 3 cells", "mail on fast", "smart", "On the Pareto front: smart.", "failed: ", ": no"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn drives_that_differ_little_have_charts_of_their_own() {
        let with = |over_provisioning: f64, erases: u64| {
            let mut row = row("fast", "none", Ok((erases, 9)));
            row.cell.over_provisioning = Some(over_provisioning);
            row
        };
        let page = page_of(vec![with(0.0696, 1019), with(0.0704, 923)]);
        for (share, erases) in [("6.96", "1019"), ("7.04", "923")] {
            assert!(page.contains(&format!("OP {share} %, think time 1×</figcaption>")), "{page}");
            assert!(page.contains(&format!("none: {erases} erases")), "{page}");
        }
    }

    #[test]
    fn page_names_the_front_and_the_reason_of_failures_once() {
        let rows = vec![
            row("fast", "none", Ok((9, 9))),
            row("fast", "online", Ok((5, 7))),
            row("fast", "smart", Ok((6, 4))),
            row("small", "none", Err("too <small>")),
            row("small", "smart", Err("too <small>")),
        ];
        let mut rows = rows;
        // The double of what online does, in twice as many passes.
        let twice =
            Figures { passes: Some(2), erases: 10, waited_ns: Some(14_000_000_000), ..Figures::default() };
        rows.push(SweepRow { figures: Some(twice), ..row("fast", "batched:1m", Ok((0, 0))) });
        let page = page_of(rows);
        assert!(page.contains("On the Pareto front: online, batched:1m, smart. Never discarded anything: online, smart, batched:1m.</p>"), "{page}");
        assert_eq!(page.matches("too &lt;small&gt;").count(), 1);
        assert!(page.contains("<li>2 cells, the first of them mail on small, "), "{page}");
    }
}
