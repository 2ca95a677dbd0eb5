//! `trimtab reproduce` as a user runs it.

use std::process::{Command, Output};

use trimtab_core::document::ReproduceDocument;
use trimtab_core::document::reproduce::Verdict;

fn reproduce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trimtab")).arg("reproduce").args(arguments).output().unwrap()
}

#[test]
fn without_a_name_it_lists_the_experiments() {
    let output = reproduce(&[]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for name in ["nagel-tree", "purdea-sizes", "czerner", "datalight", "kernel-changes", "drives"] {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn wrong_requests_are_refused_in_one_line() {
    for (arguments, code, known) in [
        (&["wood"][..], 2, "nagel-tree, purdea-sizes, czerner, datalight, kernel-changes, drives"),
        (&["--json", "x.json"], 1, "name an experiment"),
        (&["datalight", "--all"], 2, "cannot be used with"),
        (&["datalight", "--speed", "2"], 1, "add --clock real"),
        (&["datalight", "--drive", "floppy"], 1, "ocz-agility-3"),
        (&["datalight", "--on", "/no/such"], 1, "/no/such"),
        (&["datalight", "--on", "/dev/loop-control"], 1, "/dev/loop-control"),
    ] {
        let output = reproduce(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        assert!(said.contains(known), "{said}");
    }
}

#[test]
fn experiment_measures_its_claims_and_makes_a_page() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: emulated drives need root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("out");
    let options =
        ["purdea-sizes", "--clock", "real", "--speed", "1000", "--report", report.to_str().unwrap()];
    let output = reproduce(&options);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read(report.join("reproduce.json")).unwrap();
    let document: ReproduceDocument = serde_json::from_slice(&json).unwrap();
    assert_eq!(document.stopped, None);
    let verdicts: Vec<_> = document.claims().map(|claim| claim.verdict).collect();
    assert!(!verdicts.contains(&Verdict::NotMeasured), "{verdicts:?}");
    assert!(verdicts.contains(&Verdict::Fitted));
    for claim in document.claims() {
        assert_eq!(claim.verdict, claim.judge(), "{}", claim.says);
    }
    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("Purdea Andrei") && page.contains("<svg"));
}
