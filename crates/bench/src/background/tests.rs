//! The closed loop in model time: what a bench finds of a drive is what its profile says, and a drive by the profile
//! that the bench writes behaves as the first one.

use std::time::Duration;

use trimtab_core::document::BenchDocument;
use trimtab_core::document::bench::{Part, Pattern};
use trimtab_core::extent::Extent;
use trimtab_core::interrupt::Interrupt;
use trimtab_core::profile::{Idle, Profile, Sourced};
use trimtab_core::{Bytes, Nanos};

use super::super::budget::Budget;
use super::super::device_under_test::DeviceUnderTest;
use super::super::memory::{Behaviour, device};
use super::super::model::Model;
use super::super::profile::profile;
use super::super::{BenchOptions, BenchProgress, bench, fit, queueing};
use super::*;

/// A smaller drive has so few groups of fast blocks that what pauses give back grows in steps, and lies on no line.
const SIZE: Bytes = Bytes(2 << 30);

struct Quiet;

impl BenchProgress for Quiet {
    fn at(&mut self, _what: &str, _left: Duration) {}
}

fn sourced<T>(value: T) -> Sourced<T> {
    Sourced { value, source: "a test".to_owned() }
}

fn named(name: &str) -> Profile {
    Profile::named(name).unwrap()
}

/// Returns the results of these parts of a bench of a drive of this profile.
fn measured(profile: &Profile, parts: &[Part], depths: &[u32]) -> BenchDocument {
    let plan = trimtab_core::document::bench::BenchPlan {
        range: Extent::at(Bytes::ZERO, SIZE),
        parts: parts.to_vec(),
        sizes: [26, 24, 22, 20, 16].map(|power| Bytes(1 << power)).to_vec(),
        patterns: vec![Pattern::Sequential, Pattern::Unwritten],
        depths: depths.to_vec(),
        operations: vec![trimtab_core::erase::Operation::Discard],
        budget_wall_s: 3600.0,
        verify_delay_wall_s: 0.0,
        seed: 1,
    };
    let options =
        BenchOptions { device: device(&Behaviour::honest(SIZE)), plan, command: Vec::new(), resumed: None };
    let model = Model::new(profile, SIZE);
    let document = bench(&model, options, &Interrupt::never(), &mut Quiet, &mut |_| Ok(())).unwrap();
    assert_eq!(document.stopped, None);
    document
}

/// The drive's own work, as a bench finds it.
fn found(profile: &Profile) -> Background {
    measured(profile, &[Part::Background], &[1]).background.unwrap()
}

/// The profile that a bench of everything that takes model time writes.
fn profile_of(original: &Profile) -> Profile {
    profile(&measured(original, &[Part::Latency, Part::Background], &[1])).unwrap().0
}

#[track_caller]
fn assert_near(what: &str, found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() <= tolerance, "{what}: {found} is not {expected}");
}

#[test]
fn cache_of_a_drive_is_recovered() {
    for name in ["samsung-980", "crucial-p1"] {
        let original = named(name);
        let slc = original.slc.clone().unwrap();
        let Background { cache, cleaning, .. } = found(&original);
        let cache = cache.unwrap();
        assert_eq!(cleaning, None);
        let size = (slc.static_size.value + slc.dynamic_size.value) * SIZE.0 as f64;
        assert_near("empty", cache.empty.0 as f64, size, 0.1);
        let after = original.idle.as_ref().unwrap().after.value.seconds();
        let refill = cache.refill.unwrap();
        assert!(refill.complete, "{refill:?}");
        assert_near("after", refill.after_wall_s, after, 0.25);

        // How a full drive gets room for a dynamic cache back depends on what it keeps erased, which can't be seen.
        let copy = profile_of(&original);
        assert_near("after of the copy", copy.idle.as_ref().unwrap().after.value.seconds(), after, 0.25);
        let again = found(&copy).cache.unwrap();
        assert_near("empty again", again.empty.0 as f64, cache.empty.0 as f64, 0.1);
        assert_near("fast again", again.fast_mib_s, cache.fast_mib_s, 0.2);
        assert_near("slow again", again.slow_mib_s, cache.slow_mib_s, 0.2);
    }
}

#[test]
fn refill_of_a_static_cache_is_recovered() {
    let mut original = named("crucial-p1");
    original.slc.as_mut().unwrap().static_size.value = 0.1;
    original.slc.as_mut().unwrap().dynamic_size.value = 0.0;
    let cache = found(&original).cache.unwrap();
    let refill = cache.refill.unwrap();
    let copy = profile_of(&original);
    let slc = copy.slc.as_ref().unwrap();
    assert_near("static_size", slc.static_size.value, 0.1, 0.1);
    assert!(slc.dynamic_size.value < 0.01, "{slc:?}");
    let again = found(&copy).cache.unwrap().refill.unwrap();
    assert!(refill.complete && again.complete);
    assert_near("most", again.most.0 as f64, refill.most.0 as f64, 0.1);
    assert_near("rate", again.mib_s.unwrap(), refill.mib_s.unwrap(), 0.25);
    assert_near("after", again.after_wall_s, refill.after_wall_s, 0.25);
}

#[test]
fn idle_cleaning_is_recovered() {
    let mut original = named("nvme-tlc");
    original.geometry.over_provisioning.value = 0.12;
    original.idle = Some(Idle { after: sourced(Nanos(200_000_000)), reserve: sourced(0.05) });
    let Background { cache, cleaning, .. } = found(&original);
    assert_eq!(cache, None);
    let cleaning = cleaning.unwrap();
    assert_near("after", cleaning.after_wall_s, 0.2, 0.25);
    assert_near("reserve", cleaning.most.0 as f64, 0.05 * SIZE.0 as f64, 0.15);
    assert!(cleaning.complete);
}

#[test]
fn work_after_discards_is_recovered() {
    let mut original = named("nvme-tlc");
    original.discard.per_gib = sourced(Nanos(20_000_000));
    original.discard.per_mapped_gib = Some(sourced(Nanos(60_000_000)));
    original.discard.lazy_share = Some(sourced(0.3));
    let lazy = found(&original).lazy.unwrap();
    assert_near("share", lazy.share, 0.3, 0.15);
    assert_near("per_gib", lazy.per_gib_ms, 20.0, 0.2);
    assert_near("per_mapped_gib", lazy.per_mapped_gib_ms, 60.0, 0.2);
    let copy = profile_of(&original).discard;
    assert_near("share", copy.lazy_share.unwrap().value, 0.3, 0.15);
    assert_near("per_mapped_gib", copy.per_mapped_gib.unwrap().value.seconds(), 0.06, 0.2);
}

#[test]
fn cost_of_data_and_discards_at_once_are_recovered() {
    let mut original = named("nvme-tlc");
    original.discard.per_mapped_gib = Some(sourced(Nanos(40_000_000)));
    original.discard.queue_depth = Some(sourced(4));
    let document = measured(&original, &[Part::Latency], &[1, 8]);
    let copy = profile(&document).unwrap().0.discard;
    assert_near("per_gib", copy.per_gib.value.seconds(), original.discard.per_gib.value.seconds(), 0.1);
    assert_near("per_mapped_gib", copy.per_mapped_gib.unwrap().value.seconds(), 0.04, 0.1);
    assert_eq!(copy.queue_depth.unwrap().value, 4);
}

/// Returns the background that a bench finds, and the profile that it writes.
fn beside_discards(original: &Profile) -> (Background, Profile) {
    let mut document = measured(original, &[Part::Latency, Part::Background], &[1]);
    let (model, interrupt) = (Model::new(original, SIZE), Interrupt::never());
    let mut tested = DeviceUnderTest::new(&model, document.plan.range, &interrupt);
    let queue = document.device.queue_requests;
    let budget = Budget::new(Duration::from_secs(60));
    document.queueing = Some(queueing::measure(&mut tested, queue, budget, 1).unwrap());
    document.fit = fit::fit(&document);
    let copy = profile(&document).unwrap().0;
    (document.background.unwrap(), copy)
}

#[test]
fn share_that_discards_take_until_they_return_is_recovered() {
    for share in [0.3, 0.7] {
        let mut original = named("nvme-tlc");
        original.discard.per_gib.value = Nanos(20_000_000);
        original.discard.busy_share = Some(sourced(share));
        let (found, copy) = beside_discards(&original);
        assert_eq!(found.lazy, None);
        assert_near("busy_share", copy.discard.busy_share.as_ref().expect("it is felt").value, share, 0.2);
        assert_near("of the copy", beside_discards(&copy).0.busy_share.expect("it is felt"), share, 0.2);
    }
}

#[test]
fn drives_whose_discards_nobody_feels_have_no_busy_share() {
    let mut free = named("nvme-tlc");
    free.discard.per_gib.value = Nanos(20_000_000);
    let (found, copy) = beside_discards(&free);
    let [data, bare] = &found.after_discards[..] else { panic!("{found:?}") };
    assert!(data.beside_us.is_some() && bare.beside_us.is_some(), "reads go on beside discards");
    assert_eq!((found.busy_share, copy.discard.busy_share), (None, None));
    // Reads wait for the discard: that is no share.
    free.discard.queued.value = false;
    free.discard.busy_share = Some(sourced(0.5));
    assert_eq!(beside_discards(&free).1.discard.busy_share, None);
}

#[test]
fn a_drive_without_work_of_its_own_shows_none() {
    let Background { cache, cleaning, lazy, .. } = found(&named("nvme-tlc"));
    assert_eq!((cache, cleaning, lazy), (None, None, None));
    let document = measured(&named("nvme-tlc"), &[Part::Latency], &[1, 8]);
    let fit = document.fit.unwrap();
    assert_eq!((fit.per_mapped_gib_ms, fit.at_once), (None, None));
}
