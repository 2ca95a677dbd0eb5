//! How the policy learns from a drive that others use.

use super::*;

/// A policy after a minute of large writes without a pause on `ocz-agility-3`, in which 8 MiB were freed in each second.
/// The drive was busy for as long as the writes take, and for this share of the computed loss.
fn after_writes_that_lose(share: f64) -> SmartPolicy {
    after_minutes_that_lose(&[share])
}

/// The same after several minutes, each with its own share.
fn after_minutes_that_lose(shares: &[f64]) -> SmartPolicy {
    let mut policy = policy("ocz-agility-3", Goals::default());
    policy.on_event(Duration::ZERO, &Event::Freed(extent(0, Bytes(256 << 20))));
    let (mut now, span) = (Duration::ZERO, Duration::from_millis(200));
    for round in 0..300 * shares.len() as u64 {
        let share = shares[round as usize / 300];
        if round % 5 == 0 {
            // Files take in each second minute what others freed in the first.
            let (turn, place) = (round / 300, round % 300);
            let bytes = extent(1024 + 16 * place, Bytes(8 << 20));
            let event = if turn % 2 == 0 { Event::Freed(bytes) } else { Event::Written(bytes) };
            policy.on_event(now, &event);
        }
        let pending = policy.pending().len();
        let [_, alone, _] = policy.worth.write_parts_by_profile(0, Bytes(1), policy.free, pending);
        let of_byte = alone + share * policy.worth.delay_per_byte(policy.free, pending, pending);
        let written = Bytes((span.as_secs_f64() / of_byte) as u64);
        let (completed, latency) = (written.0 >> 20, Duration::from_millis(20));
        now += span;
        let load =
            Load { span, in_flight: 8, completed, latency, written, read: Bytes::ZERO, busy: Some(span) };
        policy.on_event(now, &Event::Load(load));
        for request in policy.on_event(now, &Event::Wake) {
            let TrimScope::Within(extents) = request.scope else { panic!("it trims what was freed") };
            let took = extents.iter().map(|extent| policy.worth.time(extent.len())).sum();
            now += took;
            done(&mut policy, now, took);
        }
    }
    policy
}

#[test]
fn trims_go_beside_writes_as_far_as_these_were_seen_to_lose_time() {
    let [none, all] = [0.0, 1.0].map(after_writes_that_lose);
    assert!(none.loss.real_share() < 0.25 && all.loss.real_share() > 0.9, "{:?} {:?}", none.loss, all.loss);
    assert_eq!(all.pending().len(), Bytes::ZERO);
    assert!(none.pending().len() >= Bytes(32 << 20), "{}", none.pending().len());
}

#[test]
fn gain_of_discards_counts_as_far_as_writes_were_seen_to_lose_time() {
    let [none, all] = [0.0, 1.0].map(after_writes_that_lose);
    let (free, pending) = (Bytes::GIB, Bytes(768 << 20));
    let [saved_by_none, saved_by_all] = [&none, &all].map(|policy| policy.worth.time_saved(free, pending));
    assert!(
        saved_by_none * 4 < saved_by_all && !saved_by_none.is_zero(),
        "{saved_by_none:?} {saved_by_all:?}"
    );
    let [long, short] = [&none, &all].map(|policy| policy.worth.thresholds(free, pending));
    let short_busy = short.busy.expect("it pays");
    assert!(long.busy.is_none_or(|long_busy| long_busy > short_busy * 4), "{long:?} {short:?}");
    assert_eq!(long.idle, short.idle, "it takes no time of others on an idle drive");
}

#[test]
fn drive_that_begins_to_lose_time_after_minutes_is_noticed() {
    let policy = after_minutes_that_lose(&[0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    assert!(policy.loss.real_share() > 0.5, "{:?}", policy.loss);
    assert!(policy.pending().len() <= Bytes(32 << 20), "{}", policy.pending().len());
}

#[test]
fn busy_time_of_spans_with_trims_shows_nothing_of_writes() {
    let mut policy = policy("ocz-agility-3", Goals::default());
    policy.on_event(Duration::ZERO, &Event::Freed(extent(0, Bytes(256 << 20))));
    let load = |busy| Load {
        span: SECOND,
        in_flight: 8,
        completed: 100,
        latency: Duration::from_millis(10),
        written: Bytes(100 << 20),
        read: Bytes::ZERO,
        busy,
    };
    for second in 1..60 {
        done(&mut policy, SECOND * second, SECOND / 2);
        policy.on_event(SECOND * second, &Event::Load(load(Some(SECOND * 9))));
        policy.on_event(SECOND * second, &Event::Load(load(None)));
    }
    assert_eq!((policy.loss.real_share(), policy.loss.flash_factor()), (1.0, 1.0));
    let before = policy.worth.time_saved(policy.free, policy.pending.len());
    for second in 60..120 {
        policy.on_event(SECOND * second, &Event::Load(load(Some(SECOND * 9))));
    }
    let factor = policy.loss.flash_factor();
    assert!(factor > 2.0, "nothing else explains 9 s for 100 MiB: {factor}");
    let saved = policy.worth.time_saved(policy.free, policy.pending.len());
    assert!(
        (saved.as_secs_f64() / before.as_secs_f64() / factor - 1.0).abs() < 1e-6,
        "copies take as much longer"
    );
}

/// How many times as long as before the shortest command is expected to take, after trims that the drive works on for
/// `factor` times as long as expected, beside writes for which they wait for up to 20 ms.
fn learned_beside_writes(factor: f64) -> f64 {
    let mut policy = policy("micron-emmc", Goals::default());
    let before = policy.worth.shortest();
    let own = policy.worth.time(Bytes(8 << 20)).mul_f64(factor);
    let (span, latency) = (SECOND, Duration::from_millis(20));
    let load = Load {
        span,
        in_flight: 8,
        completed: 400,
        latency,
        written: Bytes(20 << 20),
        read: Bytes::ZERO,
        busy: Some(span),
    };
    policy.on_event(SECOND, &Event::Load(load));
    for second in 2..40 {
        policy.on_event(Duration::ZERO, &Event::Freed(extent(second * 16, Bytes(8 << 20))));
        let at = SECOND * second as u32;
        policy.on_event(at, &Event::Load(load));
        policy.under_way = Some(UnderWay { bytes: Bytes(8 << 20), extents: 1, since: None });
        let sent = Some(Sent { discards: 1, bytes: Bytes(8 << 20) });
        let took = own + latency.mul_f64([0.1, 0.9, 0.5, 0.3][second as usize % 4]);
        policy.on_event(
            at,
            &Event::Trimmed(Trimmed { took, refused: ExtentSet::new(), partial: ExtentSet::new(), sent }),
        );
    }
    policy.worth.shortest().as_secs_f64() / before.as_secs_f64()
}

#[test]
fn waits_for_the_commands_of_others_are_not_what_a_discard_costs() {
    let ratio = learned_beside_writes(1.0);
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}

#[test]
fn discards_that_take_longer_than_waits_explain_are_noticed_beside_others() {
    let ratio = learned_beside_writes(10.0);
    assert!((5.0..11.0).contains(&ratio), "{ratio}");
}

#[test]
fn discards_that_take_less_than_expected_are_noticed_beside_others() {
    let ratio = learned_beside_writes(0.1);
    assert!((0.1..0.8).contains(&ratio), "a tenth, and the shortest wait: {ratio}");
}

#[test]
fn writes_while_nothing_was_pending_lost_nothing() {
    let mut policy = policy("samsung-870-evo", Goals::default());
    policy.on_event(SECOND, &Event::Load(Load { written: Bytes::ZERO, ..an_hour() }));
    policy.on_event(SECOND * 3600, &Event::Freed(extent(0, Bytes(256 << 20))));
    policy.on_event(SECOND * 3600 + SECOND / 10, &Event::Load(an_hour()));
    let most = policy.worth.delay_per_byte(policy.free, policy.pending.len(), policy.pending.len());
    // A tenth of a second of the hour.
    let written = Bytes(20 << 30).0 as f64 / 36_000.0;
    assert!(policy.lost.as_secs_f64() <= written * most * 1.01, "{:?}", policy.lost);
    assert!(policy.unconfirmed.is_none() && !policy.is_urgent());
    policy.on_event(SECOND * 3601, &Event::Load(Load { span: SECOND / 2, ..an_hour() }));
    assert!(policy.lost.as_secs_f64() > written * most * 10.0, "it counts from then on");
}

/// The load of an hour in which 20 GiB were written.
fn an_hour() -> Load {
    Load {
        span: SECOND * 3600,
        in_flight: 1,
        completed: 20 << 10,
        latency: Duration::from_millis(1),
        written: Bytes(20 << 30),
        read: Bytes::ZERO,
        busy: Some(SECOND * 60),
    }
}
