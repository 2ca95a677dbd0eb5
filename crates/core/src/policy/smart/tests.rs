use proptest::prelude::{Strategy, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;
use crate::policy::Sent;

mod busy;

const SIZE: Bytes = Bytes(8 << 30);
const SECOND: Duration = Duration::from_secs(1);

fn policy(name: &str, goals: Goals) -> SmartPolicy {
    let profile = Profile::named(name).unwrap();
    let mut policy = SmartPolicy::new(goals, Worth::new(&profile, SIZE), Gain::Copies);
    policy.on_event(Duration::ZERO, &Event::Space { free: Bytes::GIB });
    policy
}

fn extent(start_mib: u64, length: Bytes) -> Extent {
    Extent::at(Bytes(start_mib << 20), length)
}

fn load(completed: u64) -> Event {
    let latency = Duration::from_millis(2);
    Event::Load(Load {
        span: SECOND,
        in_flight: 0,
        completed,
        latency,
        written: Bytes(completed << 12),
        read: Bytes::ZERO,
        busy: None,
    })
}

/// Looks at `at`, after a second with this many commands. Leaves out the least length, which has tests of its own.
fn look(policy: &mut SmartPolicy, at: Duration, completed: u64) -> Vec<TrimRequest> {
    policy.on_event(at, &load(completed));
    let requests = policy.on_event(at, &Event::Wake).into_iter();
    requests.map(|request| TrimRequest { min_length: Bytes::ZERO, ..request }).collect()
}

fn done(policy: &mut SmartPolicy, at: Duration, took: Duration) {
    policy.on_event(
        at,
        &Event::Trimmed(Trimmed { took, refused: ExtentSet::new(), partial: ExtentSet::new(), sent: None }),
    );
}

fn within(extents: &[Extent]) -> Vec<TrimRequest> {
    vec![TrimRequest::within(extents.iter().copied().collect())]
}

#[test]
fn policy_wakes_only_while_extents_are_pending() {
    let mut policy = policy("micron-m500it", Goals::default());
    assert_eq!(policy.next_wake(), None);
    let freed = extent(0, Bytes::GIB);
    policy.on_event(SECOND, &Event::Freed(freed));
    assert_eq!(policy.next_wake(), Some(SECOND + LATEST_FIRST_LOOK));
    assert_eq!(look(&mut policy, SECOND * 2, 0), within(&[freed]));
    done(&mut policy, SECOND * 2, Duration::from_millis(60));
    assert_eq!(policy.next_wake(), None);
}

#[test]
fn initially_free_space_is_pending() {
    let mut policy = policy("micron-m500it", Goals::default());
    let unused = extent(0, Bytes::GIB);
    policy.on_event(SECOND, &Event::Unused(unused));
    assert_eq!(look(&mut policy, SECOND * 2, 0), within(&[unused]));
}

#[test]
fn extents_that_pay_go_at_once_and_the_rest_on_an_idle_drive() {
    let mut policy = policy("micron-m500it", Goals::default());
    let large = extent(0, Bytes(512 << 20));
    // 300 small ones take the drive 10 ms each.
    let small: Vec<_> = (0..300).map(|place| extent(1024 + place, Bytes(64 << 10))).collect();
    for extent in small.iter().chain([&large]) {
        policy.on_event(Duration::ZERO, &Event::Freed(*extent));
    }
    assert_eq!(look(&mut policy, SECOND, 0), within(&[large]));
    done(&mut policy, SECOND, Duration::from_millis(40));
    for idle in 2..=3 {
        assert_eq!(look(&mut policy, SECOND * idle, 0), [], "idle for {idle} s of the 3.03 s that it takes");
    }
    let (mut now, mut trimmed) = (SECOND * 4, ExtentSet::new());
    loop {
        let requests = look(&mut policy, now, 0);
        let [TrimRequest { scope: TrimScope::Within(extents), .. }] = requests.as_slice() else { break };
        extents.iter().for_each(|extent| trimmed.insert(extent));
        now += Duration::from_millis(100);
        let took = policy.worth.time(Bytes(64 << 10)) * extents.count() as u32;
        done(&mut policy, now, took);
    }
    assert_eq!(trimmed, small.into_iter().collect());
    assert_eq!(policy.next_wake(), None);
}

#[test]
fn a_drive_with_long_commands_is_left_alone_while_it_is_busy_until_it_runs_out_of_spare() {
    let mut policy = policy("ocz-agility-3", Goals::default());
    let freed = extent(0, Bytes(512 << 20));
    policy.on_event(Duration::ZERO, &Event::Freed(freed));
    assert_eq!(look(&mut policy, SECOND, 100), [], "10 ms are more than the goal");
    let written = (2 * SIZE.0) >> 12;
    assert_ne!(look(&mut policy, SECOND * 2, written), [], "all that was spare is written");
}

#[test]
fn few_reads_a_second_do_not_keep_a_drive_from_its_trims() {
    let mut policy = policy("ocz-agility-3", Goals::default());
    let freed: Vec<_> = (0..40).map(|place| extent(place << 8, Bytes(32 << 20))).collect();
    freed.iter().for_each(|extent| _ = policy.on_event(Duration::ZERO, &Event::Freed(*extent)));
    let (mut now, mut trims, command) = (SECOND, 0, Duration::from_millis(20));
    while !policy.pending().is_empty() && now < SECOND * 60 {
        for request in look(&mut policy, now, 5) {
            let TrimScope::Within(extents) = request.scope else { panic!("it trims what was freed") };
            assert_eq!(extents.count(), 1, "a reader waits for one command at most");
            done(&mut policy, now + command, command);
            trims += 1;
        }
        now = policy.next_wake().unwrap_or(now);
    }
    assert_eq!(trims, freed.len());
    // A reader meets a trim with a probability of 0.1 and then waits for half of it: 1 ms in the mean.
    assert!(now >= (command * 10) * 39, "{now:?}");
    assert!(now < SECOND * 20, "{now:?}");
}

/// Frees five extents, writes twice the drive's size in the first second, and returns what is trimmed when
/// within a minute of light use.
fn trims_after_a_burst(goals: Goals) -> Vec<(u32, Vec<Extent>)> {
    let mut policy = policy("ocz-agility-3", goals);
    for place in 0..5 {
        policy.on_event(Duration::ZERO, &Event::Freed(extent(place << 10, Bytes(32 << 20))));
    }
    let mut trimmed = Vec::new();
    let written = (2 * SIZE.0) >> 12;
    for (second, completed) in (1..60).zip([written].into_iter().chain(std::iter::repeat(100))) {
        let at = SECOND * second;
        for request in look(&mut policy, at, completed) {
            let TrimScope::Within(extents) = request.scope else { panic!("it trims what was freed") };
            let predicted = extents.iter().map(|extent| policy.worth.time(extent.len())).sum();
            trimmed.push((second, extents.iter().collect()));
            done(&mut policy, at, predicted);
        }
    }
    trimmed
}

#[test]
fn time_that_writes_lost_pays_for_trims_beside_them() {
    let trims = trims_after_a_burst(Goals::default());
    assert_eq!(trims.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [1, 2, 3], "one a look");
    assert_eq!(trims.iter().map(|(_, extents)| extents.len()).sum::<usize>(), 5);
    let worth = policy("ocz-agility-3", Goals::default()).worth;
    for (second, extents) in trims {
        let holds: Duration = extents.iter().map(|extent| worth.time(extent.len())).sum();
        assert!(holds <= LONGEST_PAID, "at second {second}, the drive is held for {holds:?}");
    }
    assert_eq!(trims_after_a_burst(Goals { idle_only: true, ..Goals::default() }), [], "it is never idle");
}

#[test]
fn parts_of_a_cut_extent_hold_a_granule_that_the_drive_discards() {
    // The kernel leaves out what is no aligned 4 MiB of a discard.
    let policy = policy("sandisk-extreme-a2", Goals::default());
    let granule = 4 << 20;
    let whole = |part: Extent| (part.end.0 / granule).saturating_sub(part.start.0.div_ceil(granule));
    for start_mib in 0..4 {
        let mut left = extent(start_mib, Bytes(64 << 20));
        let (all, mut discarded) = (whole(left), 0);
        while !left.is_empty() {
            let chosen = policy.fill(Duration::from_millis(1), [left].into_iter());
            let part = chosen.iter().next().unwrap();
            assert!(part.end == left.end || whole(part) > 0, "{part:?} holds none");
            discarded += whole(part);
            left = Extent::new(part.end, left.end);
        }
        assert_eq!(discarded, all, "from {start_mib} MiB on");
    }
}

#[test]
fn overdue_extents_are_trimmed_whatever_their_worth() {
    let goals = Goals { max_age: Duration::from_secs(60), ..Goals::default() };
    let mut policy = policy("ocz-agility-3", goals);
    let freed = extent(0, Bytes(4096));
    policy.on_event(SECOND, &Event::Freed(freed));
    assert_eq!(look(&mut policy, SECOND * 60, 100), []);
    assert_eq!(look(&mut policy, SECOND * 61, 100), within(&[freed]));
}

#[test]
fn overdue_extents_go_one_command_at_a_time_on_a_busy_drive() {
    let goals = Goals { max_age: SECOND * 60, ..Goals::default() };
    let mut policy = policy("micron-m500it", goals);
    policy.on_event(SECOND, &Event::Freed(extent(0, Bytes(6 << 30))));
    let mut taken = look(&mut policy, SECOND * 61, 100);
    let Some(TrimRequest { scope: TrimScope::Within(extents), .. }) = taken.pop() else { panic!() };
    let least = policy.worth.shortest();
    assert!((least..=2 * least).contains(&policy.worth.time(extents.len())), "{extents:?}");
}

#[test]
fn unused_drive_is_held_for_a_fifth_of_the_time_for_which_nobody_has_used_it() {
    let mut policy = policy("nvme-tlc", Goals::default());
    let freed = (0..64).map(|index| extent(1024 * index, Bytes(512 << 20)));
    freed.for_each(|extent| _ = policy.on_event(SECOND, &Event::Freed(extent)));
    assert_eq!(policy.next_wake(), Some(SECOND + SHORTEST_LOOK), "commands are short");
    let (mut at, mut unused_for) = (SECOND, Duration::ZERO);
    // A read now and then, and then none.
    for used in [1, 0, 0, 0, 1, 0, 0].into_iter().chain([0; 60]) {
        let Event::Load(load) = load(used) else { unreachable!() };
        at += SHORTEST_LOOK;
        unused_for = if used > 0 { Duration::ZERO } else { unused_for + SHORTEST_LOOK };
        policy.on_event(at, &Event::Load(Load { span: SHORTEST_LOOK, ..load }));
        for request in policy.on_event(at, &Event::Wake) {
            let TrimScope::Within(extents) = request.scope else { panic!("it trims what was freed") };
            let took: Duration = extents.iter().map(|extent| policy.worth.time(extent.len())).sum();
            let most = (unused_for / 5).min(SECOND / 10).max(Goals::default().max_latency_added);
            assert!(took <= most && took * 2 > most, "{took:?} after {unused_for:?}");
            done(&mut policy, at, took);
            extents.iter().for_each(|extent| _ = policy.on_event(at, &Event::Freed(extent)));
        }
    }
    assert!(unused_for > SECOND, "slices reached their greatest length");
}

#[test]
fn pieces_too_short_to_pay_are_left_alone_until_they_are_overdue() {
    let goals = Goals { max_age: SECOND * 60, ..Goals::default() };
    let mut policy = policy("micron-m500it", goals);
    policy.on_event(SECOND, &Event::Freed(extent(0, Bytes(512 << 20))));
    policy.on_event(SECOND * 2, &load(0));
    let requests = policy.on_event(SECOND * 2, &Event::Wake);
    let thresholds = policy.worth.thresholds(Bytes::GIB, Bytes(512 << 20));
    assert_eq!(requests[0].min_length, thresholds.idle, "an idle drive has time for shorter ones");
    done(&mut policy, SECOND * 3, SECOND / 10);
    policy.on_event(SECOND * 4, &Event::Freed(extent(0, Bytes(4096))));
    policy.on_event(SECOND * 70, &load(100));
    let requests = policy.on_event(SECOND * 70, &Event::Wake);
    assert_eq!(requests.first().map(|request| request.min_length), Some(Bytes::ZERO), "{requests:?}");
}

/// ext4 refuses a least length above a group's, which is 8 MiB with blocks of 1 KiB.
#[test]
fn least_length_fits_a_group_of_ext4_on_a_nearly_empty_drive() {
    let size = Bytes(55 << 30);
    let mut policy = SmartPolicy::of_drive(&Profile::named("micron-m500it").unwrap(), size);
    policy.on_event(Duration::ZERO, &Event::Space { free: Bytes(54 << 30) });
    policy.on_event(SECOND, &Event::Freed(extent(0, Bytes(1500 << 20))));
    let least = policy.worth.thresholds(policy.free, policy.pending.len()).idle;
    assert!(least > Bytes(128 << 20), "{least}");
    let requests = (2..60).find_map(|at| {
        policy.on_event(SECOND * at, &load(0));
        policy.on_event(SECOND * at, &Event::Wake).pop()
    });
    assert_eq!(requests.map(|request| request.min_length), Some(LONGEST_LEFT_OUT));
}

#[test]
fn least_length_never_exceeds_an_extent_that_was_freed() {
    let mut policy = policy("nvme-tlc", Goals::default());
    policy.on_event(SECOND, &Event::Freed(extent(0, Bytes(1 << 20))));
    for at in 2..20 {
        policy.on_event(SECOND * at, &load(0));
        if let Some(request) = policy.on_event(SECOND * at, &Event::Wake).first() {
            assert!(request.min_length <= Bytes(1 << 20), "{request:?}");
            return;
        }
    }
    panic!("it is never trimmed");
}

#[test]
fn overwriting_in_place_with_little_pending_is_not_urgent() {
    let mut policy = policy("ocz-agility-3", Goals::default());
    policy.on_event(Duration::ZERO, &Event::Freed(extent(0, Bytes(16 << 20))));
    let written = (2 * SIZE.0) >> 12;
    look(&mut policy, SECOND, written);
    assert!(policy.written >= policy.worth.spare(policy.free, policy.pending.len()));
    assert!(!policy.is_urgent(), "16 MiB are no remedy");
    policy.on_event(SECOND, &Event::Freed(extent(100, Bytes(512 << 20))));
    assert!(policy.is_urgent());
}

#[test]
fn ten_thousand_overdue_extents_keep_to_their_share_of_a_busy_drive() {
    let goals = Goals { max_age: SECOND * 60, ..Goals::default() };
    let mut policy = policy("micron-m500it", goals);
    for place in 0..10_000 {
        policy.on_event(Duration::ZERO, &Event::Freed(Extent::at(Bytes(place << 19), Bytes(4096))));
    }
    let (mut now, mut held) = (SECOND * 61, Duration::ZERO);
    let end = now + SECOND * 600;
    look(&mut policy, now - SECOND * 2, 1000);
    while now < end {
        for request in look(&mut policy, now, 1000) {
            let TrimScope::Within(extents) = request.scope else { panic!("it trims what was freed") };
            let took = policy.worth.time(Bytes(4096)) * extents.count() as u32;
            assert!(took <= Duration::from_millis(25), "held for {took:?} at once");
            held += took;
            done(&mut policy, now + took, took);
        }
        now = policy.next_wake().unwrap_or(end).max(now + SECOND / 100);
    }
    let share = held.as_secs_f64() / 600.0;
    assert!((0.002..0.0055).contains(&share), "{share}");
    let text = policy.explain(now).to_string();
    assert!(text.contains(" past the maximum age, trimmed in 0.50 % of the time while"), "{text}");
}

#[test]
fn only_completed_discards_are_learned_from() {
    let mut policy = policy("micron-m500it", Goals::default());
    policy.on_event(Duration::ZERO, &Event::Freed(extent(0, Bytes(512 << 20))));
    look(&mut policy, SECOND, 0);
    let before = policy.worth.learned();
    // The first half was cut off, or failed: nothing is known of its discards.
    let refused = ExtentSet::from_iter([extent(256, Bytes(256 << 20))]);
    policy.on_event(
        SECOND * 2,
        &Event::Trimmed(Trimmed { took: SECOND, refused, partial: ExtentSet::new(), sent: None }),
    );
    assert_eq!(policy.worth.learned(), before);
    look(&mut policy, SECOND * 3, 0);
    let sent = Some(Sent { discards: 1, bytes: Bytes(256 << 20) });
    policy.on_event(
        SECOND * 4,
        &Event::Trimmed(Trimmed { took: SECOND, refused: ExtentSet::new(), partial: ExtentSet::new(), sent }),
    );
    let after = policy.worth.learned();
    assert!(after.command > before.command && after.trims == 1, "{after:?}");
}

#[test]
fn explanation_names_the_reason_with_figures() {
    let mut busy = policy("ocz-agility-3", Goals::default());
    assert_eq!(busy.explain(SECOND).why, Why::NothingPending);
    busy.on_event(SECOND, &Event::Freed(extent(0, Bytes(512 << 20))));
    look(&mut busy, SECOND * 2, 100);
    let explained = busy.explain(SECOND * 2);
    assert_eq!((explained.why, explained.extents, explained.idle), (Why::CommandsTooLong, 1, None));
    assert!(explained.gain > explained.cost, "{explained:?}");
    let text = explained.to_string();
    for part in [
        "512 MiB pending in 1 extent,",
        "others use the drive",
        "latency goal of 1 ms",
        "by the profile, a command takes",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains(". ") && !text.contains('\n'), "one sentence: {text}");
    let mut idle = policy("micron-m500it", Goals::default());
    idle.on_event(SECOND, &Event::Freed(extent(0, Bytes(64 << 10))));
    look(&mut idle, SECOND + SECOND / 10, 0);
    let explained = idle.explain(SECOND * 2);
    assert_eq!((explained.why, explained.worthwhile), (Why::GainsLittle, Bytes::ZERO));
    let only_idle = Goals { idle_only: true, ..Goals::default() };
    let mut only_idle = policy("micron-m500it", only_idle);
    only_idle.on_event(SECOND, &Event::Freed(extent(0, Bytes(512 << 20))));
    look(&mut only_idle, SECOND * 2, 100);
    assert_eq!(only_idle.explain(SECOND * 2).why, Why::OnlyWhenIdle);
    // Many commands at once.
    look(&mut only_idle, SECOND * 3, 10_000);
    let text = only_idle.explain(SECOND * 3).to_string();
    assert!(text.contains("others use the drive 100.00 % of the time"), "{text}");
}

#[test]
fn refused_extents_keep_their_age() {
    let mut policy = policy("nvme-tlc", Goals::default());
    policy.on_event(SECOND, &Event::Freed(extent(0, Bytes::GIB)));
    let requests = look(&mut policy, SECOND * 9, 0);
    let [TrimRequest { scope: TrimScope::Within(refused), .. }] = requests.as_slice() else { panic!() };
    let refused = refused.clone();
    policy.on_event(
        SECOND * 9,
        &Event::Trimmed(Trimmed { took: Duration::ZERO, refused, partial: ExtentSet::new(), sent: None }),
    );
    assert_eq!(policy.pending().iter().collect::<Vec<_>>(), [(extent(0, Bytes::GIB), SECOND)]);
}

#[test]
fn pool_gets_back_extents_that_hold_a_chunk() {
    let profile = Profile::named("ocz-agility-3").unwrap();
    let gain = Gain::Space { chunk: Bytes::MIB };
    let mut policy = SmartPolicy::new(Goals::default(), Worth::new(&profile, SIZE), gain);
    let (small, chunk) = (extent(0, Bytes(512 << 10)), extent(10, Bytes::MIB));
    for freed in [small, chunk] {
        policy.on_event(Duration::ZERO, &Event::Freed(freed));
    }
    assert_eq!(look(&mut policy, SECOND, 0), within(&[chunk]));
}

/// An action of the property test on a policy.
#[derive(Debug, Clone)]
enum Step {
    Free(Extent),
    Write(Extent),
    Look(u64),
    Done(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let extents = || (0..64_u64, 1..16_u64).prop_map(|(start, length)| extent(start, Bytes(length << 20)));
    let step = prop_oneof![
        3 => extents().prop_map(Step::Free),
        1 => extents().prop_map(Step::Write),
        2 => (0..3_u64).prop_map(Step::Look),
        2 => prop::bool::ANY.prop_map(Step::Done),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Whatever happens, what was freed is pending, under way or written.
    #[test]
    fn freed_extents_stay_pending_until_trimmed_or_written(steps in steps()) {
        let mut policy = policy("nvme-tlc", Goals::default());
        let (mut pending, mut under_way) = (ExtentSet::new(), None::<ExtentSet>);
        for (step, at) in steps.into_iter().zip(1..) {
            let at = SECOND * at;
            match step {
                Step::Free(extent) => {
                    pending.insert(extent);
                    policy.on_event(at, &Event::Freed(extent));
                }
                Step::Write(extent) => {
                    pending.remove(extent);
                    policy.on_event(at, &Event::Written(extent));
                }
                Step::Look(completed) => {
                    for request in look(&mut policy, at, completed) {
                        assert!(under_way.is_none(), "one at a time");
                        let TrimScope::Within(extents) = request.scope else { panic!("not all of it") };
                        extents.iter().for_each(|extent| pending.remove(extent));
                        under_way = Some(extents);
                    }
                }
                Step::Done(fails) => {
                    let Some(extents) = under_way.take() else { continue };
                    let refused = if fails { extents } else { ExtentSet::new() };
                    refused.iter().for_each(|extent| pending.insert(extent));
                    policy.on_event(at, &Event::Trimmed(Trimmed { took: SECOND / 100, refused, partial: ExtentSet::new(), sent: None }));
                }
            }
            let held: ExtentSet = policy.pending().iter().map(|(extent, _)| extent).collect();
            prop_assert_eq!(&held, &pending);
            let waits = !pending.is_empty() && under_way.is_none();
            prop_assert!(policy.next_wake().is_some() || !waits, "it would never be trimmed");
        }
    }
}
