//! `trimtab sim TRACE` as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use trimtab_core::trace::{Comm, DeviceIndex, EventKind, FsIndex, TraceDevice, TraceEvent, TraceHeader};
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_trace::TraceWriter;

const SIZE: Bytes = Bytes::GIB;
const CHUNK: Bytes = Bytes(256 << 10);
const HOUR: u64 = 3_600_000_000_000;

/// Files a round.
const FILES: u64 = 1600;

/// A day on a half full device: every hour some files are written, all over one half of it, and those
/// of the hour before are deleted from the other.
fn day() -> Vec<TraceEvent> {
    let half = SIZE.0 / CHUNK.0 / 2;
    let file = |round: u64, n: u64| {
        let place = round % 2 * half + (n * (2 * round + 1) * 37 + round * 13) % half;
        Extent::at(Bytes(place * CHUNK.0), CHUNK)
    };
    let mut events = Vec::new();
    for round in 0..24 {
        for n in 0..FILES {
            let at = round * HOUR + n * 2_000_000_000;
            events.push(event(at, EventKind::Write, file(round, n)));
            events.push(event(
                at + 600_000_000,
                EventKind::Read,
                Extent::at(file(round, n).start, Bytes(4096)),
            ));
            if round > 0 {
                events.push(event(at + 900_000_000, EventKind::Free, file(round - 1, n)));
            }
        }
    }
    events.push(event(24 * HOUR, EventKind::Flush, Extent::at(Bytes::ZERO, Bytes::ZERO)));
    events
}

fn event(at: u64, kind: EventKind, extent: Extent) -> TraceEvent {
    TraceEvent {
        at: Nanos(at),
        device: DeviceIndex(0),
        kind,
        extent,
        latency: kind.is_request().then_some(Nanos(80_000)),
        process: Comm::new(b"cp"),
        error: 0,
        fs: (!kind.is_request()).then_some(FsIndex(0)),
    }
}

fn header(devices: &[&str]) -> TraceHeader {
    let device = |name: &&str| TraceDevice { name: (*name).to_owned(), size: SIZE, ..TraceDevice::default() };
    TraceHeader {
        devices: devices.iter().map(device).collect(),
        file_systems: vec![trimtab_core::trace::TraceFileSystem {
            kind: "ext4".to_owned(),
            mount_point: "/home".to_owned(),
            options: "rw".to_owned(),
            source: "/dev/sda1".to_owned(),
        }],
        has_discards: true,
        has_frees: true,
        duration: Some(Nanos(1)),
        ..TraceHeader::new("record")
    }
}

fn saved(dir: &TempDir, header: TraceHeader, events: &[TraceEvent]) -> PathBuf {
    let earlier = std::fs::read_dir(dir.path()).unwrap().count();
    let path =
        dir.path().join(if earlier == 0 { "trace.parquet".to_owned() } else { format!("{earlier}.parquet") });
    let mut writer = TraceWriter::create(&path, header).unwrap();
    writer.write(events).unwrap();
    writer.finish().unwrap();
    path
}

fn sim(trace: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimtab"));
    command.current_dir(trace.parent().unwrap());
    command.arg("sim").arg(trace.file_name().unwrap()).args(args.split_whitespace()).output().unwrap()
}

fn json(trace: &Path, args: &str) -> Value {
    let output = sim(trace, &format!("{args} --json -"));
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(trace: &Path, args: &str) -> String {
    let output = sim(trace, args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{args}: {message}");
    assert!(message.starts_with("trimtab: ") && message.lines().count() == 1, "{args}: {message}");
    assert!(output.stdout.is_empty(), "{args}");
    message
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn each_policy_sends_the_discards_it_is_defined_by() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &day());
    let document = json(&trace, "--profile nvme-tlc,ocz-agility-3 --policy none,online,batched,batched:1h");
    assert_eq!(document["schema"], "trimtab/sim/2");
    assert_eq!(
        (&document["trace"]["device"], number(&document["trace"]["size"])),
        (&Value::from("sda"), SIZE.0 as f64)
    );
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 8);
    for (place, run) in runs.iter().enumerate() {
        let counters = &run["outcome"]["counters"];
        let frees = 23.0 * FILES as f64;
        assert_eq!(number(&counters["write_bytes"]), 24.0 * FILES as f64 * CHUNK.0 as f64);
        match place % 4 {
            0 => assert_eq!((number(&counters["discards"]), &run["policy"]), (0.0, &Value::from("none"))),
            1 => assert_eq!(number(&counters["discards"]), frees),
            2 => {
                assert!(number(&counters["discards"]) <= FILES as f64 && number(&counters["discards"]) > 0.0)
            }
            _ => assert!((100.0..frees).contains(&number(&counters["discards"])), "{counters}"),
        }
        assert!(number(&run["lifetime_years"]) > 0.0);
        assert_eq!(run["outcome"]["erases_by_phase"].as_array().map(Vec::len), Some(10));
    }
    let erases = |place: usize| number(&runs[place]["outcome"]["counters"]["erases"]);
    assert!(erases(1) < 0.8 * erases(0) && erases(3) < 0.9 * erases(0), "discards spare erases");
    assert!((erases(0) - erases(2)).abs() <= 2.0, "what is trimmed at the end comes too late");
}

#[test]
fn terminal_and_report_name_the_best_policy_and_the_reason() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &day());
    let output = sim(&trace, "--profile nvme-tlc --policy none,online,batched:1h,ideal --report out");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = include_str!("sim_trace.txt");
    assert_eq!(text, expected, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

    let again = Command::new(env!("CARGO_BIN_EXE_trimtab"))
        .arg("report")
        .arg(dir.path().join("out/sim.json"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(again.stdout).unwrap() + "\nReport: out/index.html\n", expected);
    let page = std::fs::read_to_string(dir.path().join("out/index.html")).unwrap();
    assert!(
        page.contains("this workload is best with policy")
            && page.contains("What each policy costs and brings, nvme-tlc")
    );
}

#[test]
fn recorded_online_run_is_replayed_unchanged() {
    let dir = TempDir::new().unwrap();
    let mut events = day();
    let discards = [(1, 0, 9), (5, 9, 90)].map(|(at, from, count)| {
        event(25 * HOUR + at, EventKind::Discard, Extent::at(Bytes(from * 4096), Bytes(count * 4096)))
    });
    events.extend(discards);
    let document = json(&saved(&dir, header(&["sda"]), &events), "--policy none,online");
    let counters = &document["runs"][1]["outcome"]["counters"];
    assert_eq!([number(&counters["discards"]), number(&counters["discard_bytes"])], [2.0, 99.0 * 4096.0]);
    assert_eq!(document["runs"][1]["discards_from"], "trace");
    assert!(document["notes"][0].as_str().unwrap().contains("its own 2 discards"), "{document}");
}

/// Some minutes of work on a device that is half unused, with the discards of its file system.
fn minutes() -> Vec<TraceEvent> {
    let unused = Extent::new(Bytes(SIZE.0 / 2), SIZE);
    let mut events = vec![event(0, EventKind::Unused, unused)];
    for n in 0..4000 {
        let (at, file) = (n * 50_000_000, Extent::at(Bytes(n * 37 % 2000 * CHUNK.0), CHUNK));
        events.push(event(at, EventKind::Write, file));
        if n % 4 == 0 {
            events.push(event(at + 20_000_000, EventKind::Free, file));
            events.push(event(at + 21_000_000, EventKind::Discard, file));
        }
    }
    events
}

#[test]
fn a_recorded_policy_is_charged_only_for_discards_that_requests_wait_for() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &minutes());
    let document = json(&trace, "--profile nvme-tlc --policy none,online");
    let outcome = |place: usize| &document["runs"][place]["outcome"];
    assert_eq!(number(&outcome(1)["counters"]["discards"]), 1000.0);
    // Queued discards in pauses: nobody waits for them, though they keep the drive busy.
    assert!(number(&outcome(1)["discards"]["p50_ns"]) > 0.0, "{document}");
    assert!(number(&outcome(1)["waited_ns"]) <= number(&outcome(0)["waited_ns"]), "{document}");
}

#[test]
fn bound_is_among_the_defaults_and_beats_all_policies() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &minutes());
    let document = json(&trace, "--profile ocz-agility-3");
    let policies = serde_json::json!(["none", "online", "batched", "smart", "ideal"]);
    assert_eq!(document["policies"], policies);
    let runs = document["runs"].as_array().unwrap();
    let bound = &runs[4]["outcome"];
    assert_eq!(number(&bound["counters"]["discards"]) + number(&bound["pending"]), 0.0);
    assert_eq!(runs[4]["discards_from"], "ideal");
    for run in &runs[..4] {
        assert!(number(&run["outcome"]["waited_ns"]) >= number(&bound["waited_ns"]), "{run}");
        let erases = |outcome: &Value| number(&outcome["counters"]["erases"]);
        assert!(erases(&run["outcome"]) >= erases(bound), "{run}");
    }
    let smart = &runs[3]["outcome"];
    assert!(
        number(&smart["counters"]["discard_bytes"]) >= SIZE.0 as f64 / 2.0,
        "smart knows of unused space"
    );
    let notes = document["notes"].to_string();
    assert!(
        notes.contains("ideal is no policy but the bound") && notes.contains("know what was unused"),
        "{notes}"
    );
}

#[test]
fn short_trace_gives_relative_erases_and_no_lifetime() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &minutes());
    let document = json(&trace, "--policy none --endurance 6000");
    assert_eq!(document["runs"][0]["lifetime_years"], Value::Null);
    assert!(document["notes"].to_string().contains("--endurance has no effect"), "{document}");
    for (policies, reference) in [("none,online,ideal", " none "), ("online,batched,ideal", " best ")] {
        let text = String::from_utf8(sim(&trace, &format!("--policy {policies}")).stdout).unwrap();
        assert!(!text.contains("life") && !text.contains("Life"), "{text}");
        let head = text.lines().find(|line| line.starts_with("policy")).unwrap();
        assert!(head.contains(reference), "{text}");
        assert!(text.contains("(ideal)"), "{text}");
    }
    let day = saved(&dir, header(&["sda"]), &day());
    assert!(json(&day, "--policy none")["runs"][0]["lifetime_years"].is_number());
}

#[test]
fn results_of_earlier_versions_are_refused() {
    let dir = TempDir::new().unwrap();
    let old = dir.path().join("old.json");
    std::fs::write(&old, r#"{"schema": "trimtab/sim/1"}"#).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_trimtab")).arg("report").arg(&old).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("run the simulation again") && message.lines().count() == 1, "{message}");
}

#[test]
fn passes_are_repeated_and_end_when_they_are_steady() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &day());
    let outcome = |args: &str| json(&trace, &format!("--policy batched {args}"))["runs"][0].clone();
    let (once, thrice) = (outcome(""), outcome("--repeat 3"));
    let written = |run: &Value| number(&run["outcome"]["counters"]["write_bytes"]);
    assert_eq!(written(&thrice), 3.0 * written(&once));
    assert_eq!(number(&thrice["outcome"]["trace_ns"]), 3.0 * number(&once["outcome"]["trace_ns"]));
    let steady = outcome("--until-steady");
    assert_eq!(steady["steady"], true);
    assert!((5.0..=20.0).contains(&number(&steady["outcome"]["passes"])), "{steady}");
    let fresh = outcome("--new");
    assert!(number(&fresh["outcome"]["counters"]["erases"]) < number(&once["outcome"]["counters"]["erases"]));
    let (assumed, stated) =
        (number(&once["lifetime_years"]), number(&outcome("--endurance 6000")["lifetime_years"]));
    assert!((stated / assumed - 2.0).abs() < 1e-9);
}

#[test]
fn a_profile_says_how_long_a_block_lasts_unless_the_user_does() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &day());
    let lives = |args: &str| {
        let document = json(&trace, &format!("--profile samsung-870-evo,crucial-p1 --policy none {args}"));
        [0, 1].map(|run| {
            let run = &document["runs"][run];
            let (outcome, cycles) = (&run["outcome"], &run["endurance_cycles"]);
            // Blocks of a cache of its own last for ever.
            let erases = number(&outcome["counters"]["erases"]) - number(&outcome["cache_erases"]);
            let rate = erases / (number(&outcome["erase_blocks"]) - number(&outcome["cache_blocks"]));
            (number(&run["lifetime_years"]) * rate / number(&outcome["trace_ns"]), cycles.clone())
        })
    };
    let [(tlc, first), (qlc, second)] = lives("");
    assert_eq!((first, second), (Value::from(3000), Value::from(1000)));
    assert!((tlc / qlc - 3.0).abs() < 1e-9, "{tlc} and {qlc}");
    let [(stated, none), (same, _)] = lives("--endurance 6000");
    assert!((stated / tlc - 2.0).abs() < 1e-9 && (same / tlc - 2.0).abs() < 1e-9 && none == Value::Null);
    let text =
        String::from_utf8(sim(&trace, "--profile samsung-870-evo,crucial-p1 --policy none").stdout).unwrap();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let note =
        "3000 times, as its profile says (samsung-870-evo); 1000 times, as its profile says (crucial-p1)";
    assert!(words.contains(note), "{text}");
}

#[test]
fn printed_profile_is_simulated_as_the_built_in_one() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &minutes());
    let printed = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trimtab"));
        command.args(["drive", "profiles"]).args(args).output().unwrap()
    };
    std::fs::write(dir.path().join("mine.toml"), printed(&["crucial-p1"]).stdout).unwrap();
    let outcome = |name: &str| {
        json(&trace, &format!("--profile {name} --policy none,online"))["runs"][1]["outcome"].clone()
    };
    assert_eq!(outcome("mine.toml"), outcome("crucial-p1"));
    let document: Value = serde_json::from_slice(&printed(&["crucial-p1", "--json"]).stdout).unwrap();
    assert_eq!(document["name"], "crucial-p1");
    let unknown = String::from_utf8(printed(&["floppy"]).stderr).unwrap();
    assert!(
        unknown.starts_with("trimtab: there is no drive profile \"floppy\"") && unknown.lines().count() == 1
    );
}

#[test]
fn blocks_turn_bad_as_they_reach_the_cycles_of_the_profile() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &day());
    let profile = include_str!("../../../profiles/samsung-870-evo.toml");
    let (profile, _) = profile.split_once("endurance =").unwrap();
    let bad_blocks = |endurance: u32| {
        let endurance = format!("endurance = {{ value = {endurance}, source = 'a test' }}");
        let variation = "variation = { value = 0.5, source = 'a test' }";
        let text = format!("{profile}{endurance}\n{variation}\n");
        std::fs::write(dir.path().join("worn.toml"), text).unwrap();
        let document = json(&trace, "--profile worn.toml --policy none");
        number(&document["runs"][0]["outcome"]["bad_blocks"])
    };
    let table = |endurance| {
        let bad = bad_blocks(endurance);
        (bad, String::from_utf8(sim(&trace, "--profile worn.toml --policy none").stdout).unwrap())
    };
    let [(most, worn), (few, used), (none, new)] = [10, 40, 1000].map(table);
    assert!(most > few && few > 0.0 && none == 0.0, "{most}, {few} and {none} blocks");
    let has_column =
        |text: &str| text.lines().any(|line| line.starts_with("policy ") && line.contains(" blocks "));
    assert_eq!([worn, used, new].map(|text| has_column(&text)), [true, true, false]);
}

#[test]
fn aged_drives_are_named_and_copy_more_than_filled_ones() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &day());
    let [filled, aged] = ["", "--aged"].map(|args| json(&trace, &format!("--policy none {args}")));
    let copied = |document: &Value| number(&document["runs"][0]["outcome"]["counters"]["copied_pages"]);
    assert!(copied(&aged) > copied(&filled), "{} and {}", copied(&aged), copied(&filled));
    assert!(aged["drives"][0]["profile_toml"].as_str().unwrap().contains("[aging]"), "{aged}");
    let note = "samsung-870-evo is an aged drive: it was overwritten at random 3 times.";
    let text = |args: &str| String::from_utf8(sim(&trace, &format!("--policy none {args}")).stdout).unwrap();
    let words = |args: &str| text(args).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words("--aged").contains(note) && !words("").contains("overwritten at random"));
}

/// A day's requests take the drive some minutes: without think times, that is all that its clock shows.
#[test]
fn without_think_times_a_timer_by_the_drives_clock_rarely_trims() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &day());
    let discards = |args: &str| {
        let document = json(&trace, &format!("--profile ocz-agility-3 --policy batched:1h,smart {args}"));
        let of = |place: usize| number(&document["runs"][place]["outcome"]["counters"]["discards"]);
        (of(0), of(1))
    };
    let as_recorded = discards("");
    let by_trace = discards("--think-scale 0");
    let by_drive = discards("--think-scale 0 --policy-clock drive");
    assert!(by_trace.0 > 0.0, "a timer in the trace's time ends as often as in the trace");
    assert_eq!(by_drive.0, 0.0, "the drive needs less than an hour");
    assert!(
        by_drive.1 < as_recorded.1,
        "a drive that is never idle is trimmed less: {by_drive:?}, {as_recorded:?}"
    );
}

#[test]
fn interval_longer_than_the_replay_is_reported_as_never_trimming() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &day());
    let notes = |args: &str| json(&trace, args)["notes"].to_string();
    let never = "batched:2days never trims: its interval is longer than what is replayed, 1day.";
    assert!(notes("--policy batched:2days,batched:1h").contains(never));
    assert!(!notes("--policy batched:2days --repeat 2").contains("never trims"));
}

#[test]
fn addresses_past_the_end_are_refused_or_scaled() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &day());
    let message = refused(&trace, "--size 512M");
    assert!(
        message.contains("but a drive of 512 MiB ends at") && message.contains("--scale-to 512MiB"),
        "{message}"
    );
    let document = json(&trace, "--scale-to 512M --policy none");
    let written = number(&document["runs"][0]["outcome"]["counters"]["write_bytes"]);
    assert_eq!(written, 12.0 * FILES as f64 * CHUNK.0 as f64);
    assert!(document["notes"].to_string().contains("sizes of requests with them"), "{document}");
    assert!(sim(&trace, "--scale-to 512MiB --policy none").status.success(), "what is advised is taken");
}

#[test]
fn copies_share_a_drive_that_is_so_many_times_as_large() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &day());
    let policies = "--policy none,online,batched:1h";
    let (one, alone) = (json(&trace, policies), json(&trace, &format!("{policies} --tiles 1")));
    for (run, same) in one["runs"].as_array().unwrap().iter().zip(alone["runs"].as_array().unwrap()) {
        assert_eq!(run["outcome"]["counters"], same["outcome"]["counters"], "one copy is the trace");
    }
    let written =
        |document: &Value, run: usize| number(&document["runs"][run]["outcome"]["counters"]["write_bytes"]);
    for order in ["slice", "interleave"] {
        let document = json(&trace, &format!("{policies} --repeat 3 --tiles 4:{order}"));
        assert_eq!(document["replay"]["tiling"], serde_json::json!({"copies": 4, "order": order}));
        let drive = &document["drives"][0];
        assert_eq!(number(&drive["size"]), 4.0 * SIZE.0 as f64);
        let spares = [drive, &one["drives"][0]].map(|drive| number(&drive["effective_spare"]));
        assert!((spares[0] - spares[1]).abs() < 0.001, "{spares:?}");
        let notes = document["notes"].to_string();
        assert!(notes.contains("4 copies of the trace lie side by side"), "{notes}");
        // Of three passes, the copies miss none, a quarter, a half, and three quarters of one.
        for run in 0..3 {
            let times = written(&document, run) / written(&one, run);
            assert!((10.0..11.0).contains(&times), "{order}: {times} times as much");
        }
    }
    let tiled = json(&trace, &format!("{policies} --tiles 4"));
    assert_eq!(tiled["replay"]["tiling"]["order"], "interleave");
    let both = tiled["one_copy"]["runs"].as_array().unwrap().iter().zip(one["runs"].as_array().unwrap());
    assert_eq!(both.clone().count(), 3);
    for (run, same) in both {
        assert_eq!(
            run["outcome"]["counters"], same["outcome"]["counters"],
            "the other end is the trace alone"
        );
    }
    assert!(one["one_copy"].is_null());
    let text = String::from_utf8(sim(&trace, &format!("{policies} --tiles 4")).stdout).unwrap();
    assert_eq!(
        text.matches("With one copy, on a drive of the traced device's size: On ").count(),
        1,
        "{text}"
    );
}

#[test]
fn trace_without_frees_gives_only_known_figures() {
    let dir = TempDir::new().unwrap();
    let requests: Vec<_> = day().into_iter().filter(|event| event.kind.is_request()).collect();
    let blind = TraceHeader { has_frees: false, ..header(&["sda"]) };
    let trace = saved(&dir, blind.clone(), &requests);
    let message = refused(&trace, "--policy none,batched:1h");
    assert!(message.contains("what batched:1h would discard; use --policy none"), "{message}");
    let document = json(&trace, "");
    assert_eq!(document["runs"].as_array().map(Vec::len), Some(1));
    assert!(document["notes"][0].as_str().unwrap().contains("only none can be replayed"), "{document}");

    let mut discards = requests;
    discards.push(event(25 * HOUR, EventKind::Discard, Extent::at(Bytes::ZERO, CHUNK)));
    let document = json(&saved(&dir, blind, &discards), "");
    assert_eq!(document["policies"], serde_json::json!(["none", "online", "ideal"]));
    assert_eq!(document["runs"].as_array().map(Vec::len), Some(3));
}

#[test]
fn device_has_to_be_chosen_among_several() {
    let dir = TempDir::new().unwrap();
    let mut events = day();
    let write = events.iter_mut().find(|event| event.kind == EventKind::Write);
    write.unwrap().device = DeviceIndex(1);
    let trace = saved(&dir, header(&["sda", "sdb", "idle"]), &events);
    let message = refused(&trace, "");
    assert!(
        message.contains("several devices: sda (") && message.contains("choose one with --device"),
        "{message}"
    );
    assert!(!message.contains("idle"), "{message}");
    assert!(refused(&trace, "--device sdx").contains("no device \"sdx\"; it has sda, sdb, idle"));
    assert_eq!(json(&trace, "--device sdb --policy none")["trace"]["device"], "sdb");
}

#[test]
fn bad_input_gets_one_clear_line() {
    let dir = TempDir::new().unwrap();
    let trace = saved(&dir, header(&["sda"]), &day());
    for (args, reason) in [
        ("--profile floppy", "there is no drive profile \"floppy\""),
        ("--policy async", "async is btrfs's own"),
        ("--policy fast", "there is no policy \"fast\""),
        ("--policy online:1h", "online has no interval"),
        ("--policy ideal:1h", "ideal has no interval"),
        ("--size 1M", "a drive of 1 MiB ends at"),
        ("--size 300001", "300001"),
        (
            "--scale-to 1M",
            "profile samsung-870-evo cannot be scaled to 1 MiB (another size: --size or --scale-to)",
        ),
        ("--size 1G --scale-to 1G", "cannot be used with"),
        ("--size 1G --tiles 2", "cannot be used with"),
        ("--tiles 0", "expected a number of copies from 1 to 1024"),
        ("--tiles 4:rows", "then :slice or :interleave, such as 64:slice"),
        ("--repeat 2 --until-steady", "cannot be used with"),
        ("--think-scale -1", "--think-scale -1 is not between 0 and"),
        ("--think-scale nan", "--think-scale NaN is not between 0 and"),
        ("--policy-clock wall", "possible values: trace, drive"),
        ("--workload uniform", "cannot be used with"),
        ("--new --aged", "cannot be used with"),
        ("--json trace.parquet", "would overwrite the trace"),
        ("--json no/such/dir.json", "no directory"),
    ] {
        let message = refused(&trace, args);
        assert!(message.contains(reason), "{args}: {message}");
    }
    assert!(refused(&dir.path().join("missing.parquet"), "").contains("missing.parquet"));
    std::fs::write(dir.path().join("text.parquet"), "hello").unwrap();
    assert!(refused(&dir.path().join("text.parquet"), "").contains("text.parquet"));
    let empty = saved(&dir, header(&["sda"]), &[]);
    assert!(refused(&empty, "").contains("the trace has no events"));
    let output =
        Command::new(env!("CARGO_BIN_EXE_trimtab")).args(["sim", "--until-steady"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
