//! The device gets the discards that fstrim would send, and that a dry run predicted.

use trimtab_core::Bytes;
use trimtab_core::document::trim::Outcome;
use trimtab_core::profile::Profile;
use trimtab_drive::Clock;

use crate::support::{Testbed, possible, sent};

/// Few files are left of many: free space of all sizes.
fn fragmented(fstype: &'static str) -> Testbed {
    let testbed = Testbed::new(fstype, Clock::Model);
    testbed.fragment(600, 200 << 10);
    testbed
}

#[test]
fn device_gets_the_same_discards_as_from_fstrim() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs", "btrfs"] {
        let testbed = fragmented(fstype);
        // ext4 and btrfs remember what was trimmed while they are mounted.
        let remounted = |mut testbed: Testbed| {
            testbed.unmount();
            testbed.mount("");
            testbed
        };
        let testbed = remounted(testbed);
        let theirs = testbed.during(|| testbed.fstrim(&[]));
        let testbed = remounted(testbed);
        let mut said = None;
        let ours = testbed.during(|| said = Some(testbed.trim(&["--unpaced", "-m", "0"])));
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
        let testbed = remounted(testbed);
        let paced = testbed.during(|| drop(testbed.trim(&["-m", "0"])));
        assert_eq!(paced.discard_bytes, ours.discard_bytes, "{fstype}");
        if fstype != "btrfs" {
            let testbed = remounted(testbed);
            let sparing = testbed.during(|| drop(testbed.trim(&[])));
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
        let testbed = fragmented(fstype);
        for minimum in [&[] as &[&str], &["-m", "0"]] {
            let arguments = [&["-n", "--profile", "micron-m500it"], minimum].concat();
            let mut planned = None;
            let touched = testbed.during(|| planned = Some(testbed.trim(&arguments)));
            assert_eq!((touched.discards, touched.writes), (0, 0), "{fstype}");
            let planned = planned.unwrap();
            assert_eq!((planned.outcome, planned.sent), (Outcome::Planned, None));
            let plan = planned.plan.unwrap();
            let (chosen, predicted) = (plan.chosen.unwrap(), plan.predicted.unwrap());
            let came = testbed.during(|| drop(testbed.trim(&[&["--full", "--unpaced"], minimum].concat())));
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
    let testbed = fragmented("ext4");
    let whole = testbed.during(|| drop(testbed.trim(&["-m", "1M"])));
    assert_eq!(testbed.during(|| drop(testbed.trim(&["-m", "1M"]))).discards, 0, "ext4 knows that it was");
    let again = testbed.during(|| drop(testbed.trim(&["--full", "-m", "1M"])));
    assert_eq!(again.discard_bytes, whole.discard_bytes);
    let all = testbed.during(|| drop(testbed.trim(&["-m", "0"])));
    assert!(all.discard_bytes > whole.discard_bytes, "the short ones were left alone before");
    assert_eq!(testbed.during(|| drop(testbed.trim(&["-m", "0"]))).discards, 0);
}

#[test]
fn ext4_on_a_slow_drive_is_trimmed_once() {
    if !possible() {
        return;
    }
    // Its discards take so long that a trim has many slices. ext4 remembers a group only if one call trimmed it.
    let profile = Profile::named("ocz-vertex-le").unwrap();
    let testbed = Testbed::on(profile, Bytes(2 << 30), "ext4", Clock::Real { speed: 1.0 });
    let sent = [(); 2].map(|()| testbed.during(|| drop(testbed.trim(&[]))));
    assert!(sent[0].discard_bytes > Bytes(3 << 29), "{sent:?}");
    // A slice that took longer than expected may have split a group or two.
    assert!(sent[1].discard_bytes.0 <= 256 << 20, "{sent:?}");
}
