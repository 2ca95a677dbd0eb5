//! The closed loop: what a bench finds on an emulated drive is what the drive's profile says.

use std::thread;

use trimtab_core::Bytes;
use trimtab_core::document::BenchDocument;
use trimtab_core::document::background::Background;
use trimtab_core::profile::{self, DiscardedReads, Profile, Sourced};
use trimtab_drive::Clock;

use crate::support::{drive, possible, results, turn};

/// How fast a drive runs: one whose discards take less than five milliseconds runs as much slower, so
/// that neither the path to an emulated drive nor whoever shares the machine shows.
fn speed(profile: &Profile) -> f64 {
    (profile.discard.command.value.seconds() / 5e-3).min(1.0)
}

/// The relative distance of two figures.
fn off(found: f64, expected: f64) -> f64 {
    (found / expected - 1.0).abs()
}

/// Whether a bench finds the same of two drives, but for figures that lie within a quarter of each other: each
/// takes it 20 s, and `crates/bench` recovers all of them from made up measurements.
fn are_alike(left: &Profile, right: &Profile) -> bool {
    let kind = |profile: &Profile| {
        let discard = &profile.discard;
        (discard.queued.value, discard.honoured_granularity.value, discard.reads.value)
    };
    let costs = |profile: &Profile| {
        let discard = &profile.discard;
        let ranges = Bytes::GIB.0 as f64 / discard.range_limit.value.0 as f64;
        let range = discard.range.value.seconds();
        [discard.command.value.seconds() + range, discard.per_gib.value.seconds() + ranges * range]
    };
    kind(left) == kind(right)
        && costs(left).into_iter().zip(costs(right)).all(|(left, right)| off(left, right) <= 0.25)
}

/// The built-in profiles, of those alike the first.
fn different_profiles() -> Vec<Profile> {
    let mut different: Vec<Profile> = Vec::new();
    for profile in profile::builtin().unwrap() {
        if !different.iter().any(|known| are_alike(known, &profile)) {
            different.push(profile);
        }
    }
    different
}

#[test]
fn every_kind_of_built_in_profile_is_recovered() {
    if !possible() {
        return;
    }
    let _turn = turn();
    // A bench mostly waits for its drive.
    for pair in different_profiles().chunks(2) {
        thread::scope(|scope| pair.iter().for_each(|profile| _ = scope.spawn(|| is_recovered(profile))));
    }
}

/// Checks that a bench of a drive with this profile finds what it costs to discard there.
fn is_recovered(profile: &Profile) {
    let speed = speed(profile);
    let discard = profile.discard.clone();
    let command = (discard.command.value + discard.range.value).seconds() / speed;
    let ranges = Bytes::GIB.0 as f64 / discard.range_limit.value.0 as f64;
    let per_gib = (discard.per_gib.value.seconds() + ranges * discard.range.value.seconds()) / speed;
    let drive = drive(profile.clone(), Bytes(1 << 30), Clock::Real { speed });
    let measure = || {
        let (document, text) =
            results(drive.device(), &["--quick", "--part", "latency,verify", "--time", "12s"]);
        eprintln!("{}: {text}", profile.name);
        document
    };
    let is_near = |document: &BenchDocument| {
        let fit = document.fit.as_ref().unwrap();
        off(fit.command_us.value, command * 1e6) <= 0.10
            && off(fit.per_gib_ms.value, per_gib * 1e3) <= 0.10
            && fit.queued == Some(discard.queued.value)
    };
    // Whoever shares this machine may spoil a measurement, but not three in a row.
    let mut documents = std::iter::repeat_with(measure).take(3);
    let document = documents.find(is_near);
    let expected = format!("{command} s, {per_gib} s, {:?}", discard.queued.value);
    let document = document.unwrap_or_else(|| panic!("{}: not {expected}", profile.name));
    let fit = document.fit.as_ref().unwrap();
    assert_eq!(fit.honoured_granularity, Some(discard.honoured_granularity.value), "{}", profile.name);
    assert_eq!(fit.reads, Some(discard.reads.value), "{}", profile.name);
}

#[test]
fn cache_and_idle_work_of_a_drive_are_found() {
    if !possible() {
        return;
    }
    let _turn = turn();
    let profile = Profile::named("crucial-p1").unwrap();
    let slc = profile.slc.as_ref().unwrap();
    let size = Bytes(1 << 30);
    let cache = (slc.static_size.value + slc.dynamic_size.value) * size.0 as f64;
    let after = profile.idle.as_ref().unwrap().after.value.seconds();
    let drive = drive(profile.clone(), size, Clock::Real { speed: 1.0 });
    let measure = || {
        let (document, text) = results(drive.device(), &["--part", "background", "--time", "40s"]);
        eprintln!("{text}");
        document.background.expect("the part was run")
    };
    let is_near = |background: &Background| {
        let Some(found) = &background.cache else { return false };
        let Some(refill) = &found.refill else { return false };
        off(found.empty.0 as f64, cache) < 0.1
            && found.fast_mib_s > 2.0 * found.slow_mib_s
            && (after / 3.0..1.5 * after).contains(&refill.after_wall_s)
            && background.lazy.is_none()
    };
    let mut found = std::iter::repeat_with(measure).take(3);
    assert!(
        found.any(|background| is_near(&background)),
        "not {cache} B of cache, filled again after {after} s"
    );
}

/// Returns the results of `--part verify` on a drive that is fast, honest and `changed`.
fn verified(change: impl FnOnce(&mut Profile)) -> (BenchDocument, String) {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    profile.discard.advertised_granularity.value = Bytes(512);
    change(&mut profile);
    let drive = drive(profile, Bytes(1 << 30), Clock::Model);
    results(drive.device(), &["--quick", "--part", "verify", "--time", "20s"])
}

#[test]
fn a_drive_that_advertises_less_than_it_honours_is_found_out() {
    if !possible() {
        return;
    }
    for honoured in [Bytes(64 << 10), Bytes(24 << 10), Bytes::MIB] {
        let (document, text) = verified(|profile| profile.discard.honoured_granularity.value = honoured);
        let granularity = document.verify.unwrap().granularity;
        assert_eq!((granularity.advertised, granularity.honoured), (Bytes(512), Some(honoured)));
        assert!(text.contains(&honoured.to_string()) && text.contains("512 B"), "{text}");
    }
}

#[test]
fn contents_of_discarded_data_are_found_out() {
    if !possible() {
        return;
    }
    for (reads, word) in [
        (DiscardedReads::Zeros, "zeros"),
        (DiscardedReads::Garbage, "something else at every read"),
        (DiscardedReads::Other, "another address"),
    ] {
        let (document, text) = verified(|profile| profile.discard.reads.value = reads);
        assert_eq!(document.verify.unwrap().reads, Some(reads));
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_drive_that_returns_old_data_is_found_out() {
    if !possible() {
        return;
    }
    // In model time nothing but the data tells.
    let (document, text) = verified(|profile| profile.discard.reads.value = DiscardedReads::Old);
    let verify = document.verify.unwrap();
    assert!(verify.readings.iter().all(|reading| reading.unchanged > 0 && reading.zero == 0));
    assert_eq!(verify.reads, None);
    assert!(text.contains("returns old data, or ignores discards"), "{text}");

    // On the real clock, reads of discarded ranges need no time of the flash.
    let _turn = turn();
    let mut old = Profile::named("ocz-agility-3").unwrap();
    old.discard.reads.value = DiscardedReads::Old;
    let drive = drive(old, Bytes(1 << 30), Clock::Real { speed: 0.5 });
    let (document, text) = results(drive.device(), &["--quick", "--part", "verify", "--time", "40s"]);
    assert_eq!(document.verify.unwrap().reads, Some(DiscardedReads::Old), "{text}");
    assert!(text.contains("old data"), "{text}");
}

#[test]
fn a_drive_that_ignores_every_tenth_discard_is_found_out() {
    if !possible() {
        return;
    }
    let ignored = Sourced { value: 10, source: "a test of lies".to_owned() };
    let (document, text) = verified(|profile| profile.discard.ignored_every = Some(ignored));
    let verify = document.verify.unwrap();
    assert_eq!(verify.ignored_every, Some(10), "{:?}", verify.ignored);
    assert_eq!(verify.granularity.honoured, Some(Bytes(4096)));
    assert!(text.contains("one of every 10 discards is ignored"), "{text}");
}
