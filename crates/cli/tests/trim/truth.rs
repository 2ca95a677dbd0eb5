//! The device gets the discards that fstrim would send, and that a dry run predicted.

use trimtab_core::document::trim::Outcome;
use trimtab_drive::Clock;

use crate::support::{Bed, possible, sent};

/// Few files are left of many: free space of all sizes.
fn fragmented(fstype: &'static str) -> Bed {
    let bed = Bed::new(fstype, Clock::Model);
    bed.fragment(600, 200 << 10);
    bed
}

#[test]
fn device_gets_the_same_discards_as_from_fstrim() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs", "btrfs"] {
        let bed = fragmented(fstype);
        // ext4 and btrfs remember what was trimmed while they are mounted.
        let remounted = |mut bed: Bed| {
            bed.unmount();
            bed.mount("");
            bed
        };
        let bed = remounted(bed);
        let theirs = bed.during(|| bed.fstrim(&[]));
        let bed = remounted(bed);
        let mut said = None;
        let ours = bed.during(|| said = Some(bed.trim(&["--unpaced", "-m", "0"])));
        if fstype == "xfs" {
            // Of a whole allocation group XFS trims 100 extents and continues with shorter ones: of the
            // many here that are as long as each other, fstrim leaves the rest (Linux 6.18).
            assert!(ours.discard_bytes >= theirs.discard_bytes && ours.discards >= theirs.discards);
        } else {
            let theirs = (theirs.discard_bytes, theirs.discards);
            assert_eq!((ours.discard_bytes, ours.discards), theirs, "{fstype}");
        }
        let said = said.unwrap();
        assert_eq!(said.outcome, Outcome::Done);
        assert_eq!(
            (sent(&said).bytes, sent(&said).discards),
            (ours.discard_bytes, ours.discards),
            "{fstype}"
        );
        assert_eq!(sent(&said).others_discards, 0, "{fstype}");
        let bed = remounted(bed);
        let paced = bed.during(|| drop(bed.trim(&["-m", "0"])));
        assert_eq!(paced.discard_bytes, ours.discard_bytes, "{fstype}");
        if fstype != "btrfs" {
            let bed = remounted(bed);
            let sparing = bed.during(|| drop(bed.trim(&[])));
            let share = sparing.discard_bytes.0 as f64 / ours.discard_bytes.0 as f64;
            assert!((0.99..=1.0).contains(&share), "{fstype}: {share}");
            assert!(sparing.discards <= ours.discards, "{fstype}: {}", sparing.discards);
        }
    }
}

#[test]
fn dry_run_predicts_the_trim_and_changes_nothing() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs"] {
        let bed = fragmented(fstype);
        for minimum in [&[] as &[&str], &["-m", "0"]] {
            let arguments = [&["-n", "--profile", "micron-m500it"], minimum].concat();
            let mut planned = None;
            let touched = bed.during(|| planned = Some(bed.trim(&arguments)));
            assert_eq!((touched.discards, touched.writes), (0, 0), "{fstype}");
            let planned = planned.unwrap();
            assert_eq!((planned.outcome, planned.sent), (Outcome::Planned, None));
            let plan = planned.plan.unwrap();
            let (chosen, predicted) = (plan.chosen.unwrap(), plan.predicted.unwrap());
            let came = bed.during(|| drop(bed.trim(&[&["--full", "--unpaced"], minimum].concat())));
            let off = |said: f64, came: f64| (said - came).abs() / came;
            assert!(off(chosen.bytes.0 as f64, came.discard_bytes.0 as f64) <= 0.01, "{fstype}: {chosen:?}");
            assert!(off(predicted.discards as f64, came.discards as f64) <= 0.01, "{fstype}: {predicted:?}");
            let model_s = came.discard_busy_ns.seconds();
            assert!(off(predicted.wall_s, model_s) <= 0.2, "{fstype}: {} and {model_s}", predicted.wall_s);
            assert_eq!(chosen.sizes.total(), chosen.extents);
        }
    }
}

#[test]
fn ext4_is_trimmed_again_if_needed() {
    if !possible() {
        return;
    }
    let bed = fragmented("ext4");
    let whole = bed.during(|| drop(bed.trim(&["-m", "1M"])));
    assert_eq!(bed.during(|| drop(bed.trim(&["-m", "1M"]))).discards, 0, "ext4 knows that it was");
    let again = bed.during(|| drop(bed.trim(&["--full", "-m", "1M"])));
    assert_eq!(again.discard_bytes, whole.discard_bytes);
    let all = bed.during(|| drop(bed.trim(&["-m", "0"])));
    assert!(all.discard_bytes > whole.discard_bytes, "the short ones were left alone before");
    assert_eq!(bed.during(|| drop(bed.trim(&["-m", "0"]))).discards, 0);
}
