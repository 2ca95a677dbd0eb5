use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use trimtab_core::Extent;
use trimtab_core::document::background::{Background, CacheFit};
use trimtab_core::profile::{Aging, Idle, MapCache, Slc, Suspend, Wear, builtin};
use trimtab_ftl::theory::greedy;
use trimtab_ftl::{Command, Device, Op};

use super::super::fit::fit;
use super::super::fixture::{Measured, document};
use super::*;

const SIZE: Bytes = Bytes(2 << 30);

fn profile_of(measured: &Measured) -> (Profile, String) {
    let mut document = document(measured);
    document.fit = fit(&document);
    profile(&document).unwrap()
}

fn assert_near(found: f64, truth: f64) {
    assert!((found / truth - 1.0).abs() < 0.1, "{found} is not {truth}");
}

#[test]
fn every_built_in_drive_is_recovered() {
    for built_in in builtin().unwrap() {
        for seed in 0..5 {
            let measured = Measured::of(&built_in, seed);
            let discard = profile_of(&measured).0.discard;
            assert_near(discard.command.value.seconds() * 1e6, measured.command_us);
            assert_near(discard.per_gib.value.seconds() * 1e3, measured.per_gib_ms);
            assert_eq!(discard.honoured_granularity.value, built_in.discard.honoured_granularity.value);
            assert_eq!(discard.queued.value, built_in.discard.queued.value);
            assert_eq!(discard.reads.value, built_in.discard.reads.value);
        }
    }
}

#[test]
fn model_fills_and_slows_like_the_measured_drive() {
    let measured = Measured { steady_mib_s: 100.0 / greedy(0.1, 512), ..Measured::default() };
    let profile = profile_of(&measured).0;
    assert_near(profile.geometry.over_provisioning.value, 0.1 / 0.9);
    let mut device = Device::new(&profile, SIZE).unwrap();
    let mut done = Nanos::ZERO;
    for start in (0..SIZE.0 / 4).step_by(1 << 20) {
        done = device.submit(done, Command { op: Op::Write, extent: Extent::at(Bytes(start), Bytes::MIB) });
    }
    assert_near(SIZE.mib() / 4.0 / done.seconds(), measured.fill_mib_s);
}

#[test]
fn model_reads_as_fast_as_the_measured_drive() {
    let measured = Measured { read_us: 87.0, ..Measured::default() };
    let mut device = Device::new(&profile_of(&measured).0, SIZE).unwrap();
    let page = Extent::at(Bytes::ZERO, PAGE);
    let written = device.submit(Nanos::ZERO, Command { op: Op::Write, extent: page });
    let start = device.submit(written, Command { op: Op::Flush, extent: page }) + Nanos(1_000_000_000);
    let done = device.submit(start, Command { op: Op::Read, extent: page });
    assert_near((done - start).seconds() * 1e6, measured.read_us);
}

#[test]
fn spare_area_is_not_derived_from_the_speed_of_a_cache() {
    let slow = 145.0;
    let measured =
        Measured { fresh_mib_s: 600.0, steady_mib_s: slow / greedy(0.1, 512), ..Measured::default() };
    let mut document = document(&measured);
    let cache = CacheFit { empty: Bytes::GIB, fast_mib_s: 976.0, slow_mib_s: slow, refill: None };
    document.background = Some(Background {
        bursts: Vec::new(),
        after_discards: Vec::new(),
        cache: Some(cache),
        cleaning: None,
        lazy: None,
        busy_share: None,
    });
    document.fit = fit(&document);
    let spare = profile(&document).unwrap().0.geometry.over_provisioning;
    assert_near(spare.value, 0.1 / 0.9);
    assert!(spare.source.contains("sequential ones past the full cache at 145.0"), "{}", spare.source);
}

#[test]
fn spare_area_is_not_derived_from_a_part_of_a_drive() {
    let mut document = document(&Measured::default());
    document.fit = fit(&document);
    let source = |document: &BenchDocument| profile(document).unwrap().0.geometry.over_provisioning.source;
    assert!(source(&document).starts_with("measured: "));
    document.plan.range = Extent::at(Bytes::ZERO, Bytes::GIB);
    assert!(source(&document).starts_with("not measured: "));
}

#[test]
fn measured_profile_is_written_like_the_built_in_ones() {
    let measured = Measured { model: "ACME \"Turbo\" 9\\1".to_owned(), ..Measured::default() };
    let (profile, text) = profile_of(&measured);
    assert_eq!(profile.name, "acme-turbo-9-1");
    let fields = |text: &str| -> Vec<String> {
        let heads = text.lines().filter(|line| line.contains(" = {") || line.starts_with('['));
        heads.map(|line| line.split(" = ").next().unwrap_or_default().to_owned()).collect()
    };
    let built_in = trimtab_core::profile::builtin_text("ocz-agility-3").unwrap();
    // A host does not see how long a block lasts.
    let (built_in, _) = built_in.split_once("\n[wear]").unwrap();
    assert_eq!(fields(&text), fields(built_in));
    assert!(text.contains("measured: trimtab bench of ACME"), "{text}");
}

#[test]
fn optional_fields_survive_being_written() {
    let (mut profile, _) = profile_of(&Measured::default());
    let (time, source) = (Nanos(1), "a test".to_owned());
    let fraction = Sourced { value: 0.001, source: source.clone() };
    let time = Sourced { value: time, source: source.clone() };
    profile.idle = Some(Idle { after: time.clone(), reserve: fraction.clone() });
    profile.discard.per_mapped_gib = Some(time.clone());
    profile.discard.lazy_share = Some(Sourced { value: 0.25, source: source.clone() });
    let mut busy = profile.clone();
    busy.discard.lazy_share = None;
    busy.discard.busy_share = Some(Sourced { value: 0.25, source: source.clone() });
    assert_eq!(Profile::parse(&text::text(&busy), "copy.toml"), Ok(busy));
    profile.discard.queue_depth = Some(Sourced { value: 7, source: source.clone() });
    profile.discard.ranges_per_command = Some(Sourced { value: 256, source: source.clone() });
    profile.slc = Some(Slc {
        bits_per_cell: Sourced { value: 3, source },
        program: time.clone(),
        static_size: fraction.clone(),
        dynamic_size: fraction.clone(),
    });
    profile.suspend = Some(Suspend { latency: time.clone(), resume: time });
    profile.aging = Some(Aging { random_writes: fraction.clone() });
    let cycles = Sourced { value: 3000, source: "a test".to_owned() };
    profile.wear = Some(Wear {
        endurance: Some(cycles.clone()),
        variation: Some(fraction.clone()),
        bad_blocks: Some(fraction.clone()),
        level_at: Some(cycles),
    });
    let entry = Sourced { value: Bytes(5), source: "a test".to_owned() };
    profile.map_cache = Some(MapCache { share: Sourced { value: 0.3, source: "a test".to_owned() }, entry });
    let text = text::text(&profile);
    assert_eq!(Profile::parse(&text, "copy.toml"), Ok(profile), "{text}");
}

#[test]
fn profile_needs_a_fit() {
    let unfitted = document(&Measured::default());
    let message = profile(&unfitted).unwrap_err().to_string();
    assert!(message.starts_with("what discards cost was not measured"), "{message}");
}

fn sizes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        Just(Bytes(0)),
        Just(Bytes(100)),
        Just(Bytes(512)),
        Just(Bytes(4096)),
        Just(Bytes(24 << 10)),
        Just(Bytes(64 << 10)),
        Just(Bytes(1 << 20)),
        Just(Bytes(1536)),
        any::<u64>().prop_map(Bytes),
    ]
}

proptest! {
    #[test]
    fn every_document_gives_a_working_drive(
        (command_us, per_gib_ms, read_us) in (0.01..1e9_f64, 0.0..1e7_f64, 0.001..1e9_f64),
        (fill_mib_s, steady_mib_s, fresh_mib_s) in (1e-3..1e6_f64, 1e-3..1e6_f64, 1e-3..1e6_f64),
        (granularity, advertised, command_limit) in (option::of(sizes()), sizes(), sizes()),
        ignored_every in option::of(any::<u32>()),
        model in ".{0,40}",
        (degrades, is_read, queue_requests) in (any::<bool>(), any::<bool>(), any::<u32>()),
    ) {
        let measured = Measured {
            model, command_us, per_gib_ms, read_us, fill_mib_s, steady_mib_s, fresh_mib_s, granularity,
            command_limit, ignored_every, ..Measured::default()
        };
        let mut document = document(&measured);
        document.device.discard_granularity = advertised;
        document.device.queue_requests = queue_requests;
        if !degrades {
            document.degradation.clear();
        }
        if !is_read {
            document.interference.clear();
        }
        document.fit = fit(&document);
        let (profile, text) = profile(&document).unwrap();
        prop_assert_eq!(Profile::parse(&text, "measured.toml"), Ok(profile.clone()), "{}", text);
        prop_assert!(Device::new(&profile, SIZE).is_ok());
    }
}
