//! The steps of requests, as blktrace, blkparse, ftrace, trace-cmd and perf write them.

use trimtab_core::trace::EventKind::{self, Discard, Read, Write, WriteZeroes};

use super::{Trace, brief, data, file_of, message, read, text};

/// The lines of blkparse for `steps`, a microsecond apart: task, action and the rest.
fn blkparse(steps: &[(u32, &str)]) -> String {
    let line = |(number, (pid, step)): (usize, &(u32, &str))| {
        format!("259,0    0 {:8} {:5}.{:09} {pid:5}  {step}\n", number + 1, 0, number * 1000)
    };
    steps.iter().enumerate().map(line).collect()
}

/// The same steps as events of ftrace.
fn ftrace(steps: &[(u32, &str)]) -> String {
    let line = |(number, (pid, step)): (usize, &(u32, &str))| {
        let (action, rest) = step.split_once("  ").unwrap();
        let (rwbs, rest) = rest.trim().split_once(' ').unwrap();
        let (event, between) = match action {
            "Q" => ("block_bio_queue", ""),
            "M" => ("block_bio_backmerge", ""),
            "F" => ("block_bio_frontmerge", ""),
            "X" => ("block_split", ""),
            "D" => ("block_rq_issue", "4096 () "),
            "R" => ("block_rq_requeue", "() "),
            "C" => ("block_rq_complete", "() "),
            _ => panic!("{action}"),
        };
        let (seconds, micros) = (100, number);
        format!("task-{pid}  [001] d..1. {seconds}.{micros:06}: {event}: 259,0 {rwbs} {between}{rest}\n")
    };
    steps.iter().enumerate().map(line).collect()
}

/// The places of the events of a kind, in bytes.
fn places(trace: &Trace, kind: EventKind) -> Vec<(u64, u64)> {
    trace.of(kind).iter().map(|event| (event.extent.start.0, event.extent.len().0)).collect()
}

/// Reads the steps in both forms, and checks that they give the same.
fn both(steps: &[(u32, &str)]) -> Trace {
    let trace = text(&blkparse(steps)).unwrap();
    assert_eq!(brief(&text(&ftrace(steps)).unwrap()), brief(&trace));
    trace
}

#[test]
fn ranges_of_a_discard_are_events_of_their_own() {
    let trace = both(&[
        (100, "Q   D 0 + 128 [xfs]"),
        (100, "Q   D 256 + 128 [xfs]"),
        (100, "D   D 0 + 256 [xfs]"),
        (0, "C   D 0 + 256 [0]"),
    ]);
    assert_eq!(brief(&trace), [(0, Discard, 0, 65536, Some(1000)), (0, Discard, 131_072, 65536, Some(1000))]);
    assert_eq!(trace.counts.more_events, 1);
    assert!(trace.header.gaps.iter().all(|gap| !gap.contains("ranges")), "{:?}", trace.header.gaps);
}

/// Two tasks queue at once; one range was split off a bio that was too long.
#[test]
fn ranges_of_two_tasks_are_told_apart() {
    let trace = both(&[
        (1, "Q  DS 1000 + 300 [a]"),
        (2, "Q  DS 5000 + 8 [b]"),
        (1, "X  DS 1000 / 1200 [a]"),
        (1, "Q  DS 9000 + 8 [a]"),
        (2, "Q  DS 7000 + 8 [b]"),
        (2, "D  DS 5000 + 16 [b]"),
        (1, "D  DS 1000 + 200 [a]"),
        (1, "D  DS 1200 + 108 [a]"),
        (0, "C  DS 1000 + 200 [0]"),
        (0, "C  DS 1200 + 108 [0]"),
        (0, "C  DS 5000 + 16 [-5]"),
    ]);
    let sectors: Vec<_> =
        places(&trace, Discard).iter().map(|(start, length)| (start / 512, length / 512)).collect();
    assert_eq!(sectors, [(5000, 8), (7000, 8), (1000, 200), (1200, 100), (9000, 8)]);
    let errors: Vec<_> = trace.events.iter().map(|event| event.error).collect();
    assert_eq!(errors, [5, 5, 0, 0, 0]);
}

#[test]
fn merged_discards_of_one_range_are_one_event() {
    let trace = both(&[
        (1, "Q   D 8 + 8 [a]"),
        (1, "Q   D 16 + 8 [a]"),
        (1, "M   D 16 + 8 [a]"),
        (1, "Q   D 0 + 8 [a]"),
        (1, "F   D 0 + 8 [a]"),
        (1, "D   D 0 + 24 [a]"),
        (0, "C   D 0 + 24 [0]"),
    ]);
    assert_eq!(places(&trace, Discard), [(0, 24 * 512)]);
}

#[test]
fn discards_without_their_ranges_are_a_gap() {
    let trace = both(&[(1, "D   D 0 + 256 [a]"), (0, "C   D 0 + 256 [0]")]);
    assert_eq!(places(&trace, Discard), [(0, 131_072)]);
    let gaps = trace.header.gaps.join("; ");
    assert!(gaps.contains("the ranges of 1 discards are not known"), "{gaps}");
}

/// Also where a discard's request is given back by the driver, and issued again.
#[test]
fn requeued_discard_keeps_its_ranges() {
    let trace = both(&[
        (1, "Q   D 0 + 128 [a]"),
        (1, "Q   D 256 + 128 [a]"),
        (1, "D   D 0 + 256 [a]"),
        (1, "R   D 0 + 256 [0]"),
        (1, "D   D 0 + 256 [a]"),
        (0, "C   D 0 + 256 [0]"),
    ]);
    assert_eq!(places(&trace, Discard), [(0, 65536), (131_072, 65536)]);
}

#[test]
fn merges_of_bios_that_are_only_queued_count() {
    let trace = both(&[(1, "Q   W 0 + 8 [a]"), (1, "Q   W 8 + 8 [a]"), (1, "M   W 8 + 8 [a]")]);
    assert_eq!(brief(&trace), [(0, Write, 0, 8192, None)]);
    let trace = both(&[
        (1, "Q   W 16 + 8 [a]"),
        (1, "Q   W 8 + 8 [a]"),
        (1, "F   W 8 + 8 [a]"),
        (1, "Q   W 0 + 8 [a]"),
        (1, "F   W 0 + 8 [a]"),
        (1, "Q   W 24 + 8 [a]"),
        (1, "M   W 24 + 8 [a]"),
        (0, "C   W 0 + 32 [0]"),
    ]);
    assert_eq!(brief(&trace), [(0, Write, 0, 16384, Some(7000))]);
    // The request that it became part of was queued before the trace began.
    let trace = both(&[(1, "Q   W 8 + 8 [a]"), (1, "M   W 8 + 8 [a]")]);
    assert_eq!(brief(&trace), [(0, Write, 4096, 4096, None)]);
}

#[test]
fn completions_without_issues_complete_the_queued_bios() {
    let trace = both(&[
        (1, "Q   W 0 + 8 [a]"),
        (1, "Q   W 8 + 8 [a]"),
        (1, "Q   D 0 + 8 [a]"),
        (1, "Q   D 64 + 8 [a]"),
        (0, "C   W 0 + 16 [0]"),
        (0, "C   D 0 + 16 [0]"),
        (0, "C   R 64 + 8 [0]"),
    ]);
    let expected = [
        (0, Write, 0, 4096, Some(4000)),
        (1000, Write, 4096, 4096, Some(3000)),
        (2000, Discard, 0, 4096, Some(3000)),
        (3000, Discard, 32768, 4096, Some(2000)),
    ];
    assert_eq!(brief(&trace), expected);
}

#[test]
fn completions_alone_are_events() {
    let trace = both(&[(0, "C   W 0 + 16 [0]"), (0, "C   R 64 + 8 [-5]"), (0, "C   D 0 + 256 [0]")]);
    let expected =
        [(0, Write, 0, 8192, None), (1000, Read, 32768, 4096, None), (2000, Discard, 0, 131_072, None)];
    assert_eq!(brief(&trace), expected);
    assert_eq!(trace.events[1].error, 5);
    let gaps = trace.header.gaps.join("; ");
    assert!(gaps.contains("of 259,0 it has only completions"), "{gaps}");
    assert!(gaps.contains("the ranges of 1 discards"), "{gaps}");
    // Those of requests from before the trace began are not.
    let trace = both(&[(0, "C   W 0 + 16 [0]"), (1, "D   R 64 + 8 [a]"), (0, "C   R 64 + 8 [0]")]);
    assert_eq!(brief(&trace), [(0, Read, 32768, 4096, Some(1000))]);
}

/// More than are held back at once.
#[test]
fn long_traces_of_one_step_are_counted_exactly() {
    for action in ["Q", "D", "C"] {
        let steps: String = (0..150_000)
            .map(|row| format!("8,0 0 {row} 0.{row:09} 7 {action} W {} + 8 [0]\n", row * 8))
            .collect();
        let trace = text(&steps).unwrap();
        assert_eq!(trace.events.len(), 150_000, "{action}");
        assert!(
            trace.events.iter().zip(0..).all(|(event, row)| event.extent.start.0 == row * 4096),
            "{action}"
        );
    }
}

#[test]
fn requests_of_one_place_complete_in_their_order() {
    let trace = both(&[
        (1, "D   W 0 + 8 [a]"),
        (1, "D   W 0 + 8 [a]"),
        (0, "C   W 0 + 8 [0]"),
        (0, "C   W 0 + 8 [0]"),
    ]);
    assert_eq!(brief(&trace), [(0, Write, 0, 4096, Some(2000)), (1000, Write, 0, 4096, Some(2000))]);
}

#[test]
fn a_request_is_done_when_its_last_piece_is() {
    let trace = both(&[(1, "D   W 0 + 16 [a]"), (0, "C   W 0 + 8 [0]"), (0, "C   W 8 + 8 [0]")]);
    assert_eq!(brief(&trace), [(0, Write, 0, 8192, Some(2000))]);
}

#[test]
fn write_zeroes_are_events() {
    let trace = both(&[(1, "D  NS 8 + 8 [a]"), (0, "C  NS 8 + 8 [0]")]);
    assert_eq!(brief(&trace), [(0, WriteZeroes, 4096, 4096, Some(1000))]);
}

/// blkparse writes the 16 bits of an error without its sign, and `(null)` or `unknown` for a process that it does not
/// know.
#[test]
fn errors_and_processes_of_blkparse_are_read() {
    let trace = text(&blkparse(&[
        (1, "D   W 0 + 8 [(null)]"),
        (1, "D   W 8 + 8 [a[b] c]"),
        (1, "D   W 16 + 8 [unknown]"),
        (0, "C   W 0 + 8 [65531]"),
        (0, "C   W 8 + 8 [0]"),
    ]));
    let trace = trace.unwrap();
    let found: Vec<_> = trace.events.iter().map(|event| (event.process.to_string(), event.error)).collect();
    assert_eq!(found, [(String::new(), 5), ("a[b] c".to_owned(), 0), (String::new(), 0)]);
}

#[test]
fn a_second_run_of_blkparse_in_a_file_is_read() {
    let first = std::fs::read_to_string(data("bt.txt")).unwrap();
    let one = text(&first).unwrap();
    let two = text(&(first.clone() + &first)).unwrap();
    assert_eq!(two.events.len(), 2 * one.events.len());
    let places = |trace: &Trace| trace.events.iter().map(|event| event.extent).collect::<Vec<_>>();
    assert_eq!(places(&two), [places(&one), places(&one)].concat());
    let gaps = two.header.gaps.join("; ");
    assert!(gaps.contains("the output of another run begins at line 385"), "{gaps}");
    assert!(!one.header.gaps.join("; ").contains("another run"));
}

#[test]
fn addresses_of_a_partition_count_from_its_start() {
    let on = |device: &str, lines: &str| {
        let trace = text(&lines.replace("DEV", device));
        trace.map(|trace| places(&trace, Write))
    };
    let lines = "DEV 0 1 0.000000000 9 D W 2048 + 8 [a]\n\
                 DEV 0 2 0.000000100 9 A W 2056 + 8 <- (8,1) 8\n\
                 DEV 0 3 0.000000200 9 Q W 2056 + 8 [a]\n\
                 DEV 0 4 0.000000300 9 D W 2056 + 8 [a]\n";
    assert_eq!(on("8,1", lines).unwrap(), [(0, 4096), (4096, 4096)]);
    assert_eq!(on("8,0", lines).unwrap(), [(2048 * 512, 4096), (2056 * 512, 4096)]);
    let early = lines.replace("D W 2048", "D W 1024");
    let error = on("8,1", &early).unwrap_err().to_string();
    assert!(error.contains("before the partition, which begins at 1 MiB"), "{error}");
    let moved = format!("{lines}8,1 0 5 0.000000400 9 A W 4096 + 8 <- (8,1) 8\n");
    let trace = on("8,1", &moved).unwrap_err().to_string();
    assert!(trace.contains("begins at 2 MiB"), "{trace}");
    for (device, gap) in [("8,1", "8,1 is a partition"), ("8,16", ""), ("259,3", "if 259,3 is a partition")] {
        let trace = text(&format!("{device} 0 1 0.000000000 9 D W 2048 + 8 [a]\n")).unwrap();
        assert_eq!(trace.header.gaps.join("; ").contains("is a partition"), !gap.is_empty(), "{device}");
        assert!(trace.header.gaps.join("; ").contains(gap));
    }
}

/// blkparse writes the number of the disk in a remap, whether the partition or the disk was traced: the bio that is queued
/// then shows which.
#[test]
fn remaps_of_blkparse_show_which_device_was_traced() {
    let lines = "DEV 1 1 0.000000000 236 D W 411648 + 8 [sync]\n\
                 259,0 1 2 0.000000000 236 A FWFSM 923822 + 8 <- (259,2) 512174\n\
                 259,0 0 1 0.000000001 51 A D 411840 + 160 <- (259,2) 192\n\
                 DEV 1 3 0.018336383 236 Q FWFSM 923822 + 8 [sync]\n\
                 DEV 0 2 0.018336384 51 Q D 411840 + 160 [a]\n\
                 DEV 0 3 0.018336385 51 D D 411840 + 160 [a]\n";
    let of = |device: &str| {
        let trace = text(&lines.replace("DEV", device)).unwrap();
        let names: Vec<_> = trace.header.devices.iter().map(|device| device.name.clone()).collect();
        assert_eq!(names, [device]);
        assert_eq!(trace.header.gaps.iter().filter(|gap| gap.contains("partition")).count(), 0);
        let of = |kind| places(&trace, kind).into_iter().map(|(start, _)| start / 512).collect::<Vec<_>>();
        (of(Write), of(Discard))
    };
    assert_eq!(of("259,2"), (vec![0], vec![192]));
    assert_eq!(of("259,0"), (vec![411_648], vec![411_840]));
    // Two volumes of the device mapper, traced together: the upper one has addresses of its own.
    let volumes = "253,1 1 1 0.000000000 236 Q W 8 + 8 [a]\n\
                   253,0 1 2 0.000000001 236 A W 2056 + 8 <- (253,1) 8\n\
                   253,0 1 3 0.000000002 236 Q W 2056 + 8 [a]\n";
    assert_eq!(places(&text(volumes).unwrap(), Write), [(8 * 512, 4096), (2056 * 512, 4096)]);
}

/// `blktrace -a queue` filters the remaps out; a remap from a partition shows that the traced device is its disk.
#[test]
fn partitions_without_remaps_are_named() {
    let gaps = |lines: &str| {
        let gaps = text(lines).unwrap().header.gaps;
        gaps.into_iter().filter(|gap| gap.contains("partition")).collect::<Vec<_>>().join("; ")
    };
    for (device, expected) in [
        ("8,1", "8,1 is a partition, and no remap event says where it begins"),
        ("179,1", "179,1 is a partition, and no remap event says where it begins"),
        ("179,8", "if 179,8 is a partition"),
        ("202,3", "202,3 is a partition"),
        ("254,1", "if 254,1 is a partition"),
        ("259,2", "if 259,2 is a partition"),
        ("254,16", ""),
        ("253,0", ""),
        ("7,1", ""),
    ] {
        let found = gaps(&format!("{device} 0 1 0.000000000 9 Q W 2048 + 8 [a]\n"));
        assert!(found.starts_with(expected) && found.is_empty() == expected.is_empty(), "{device}: {found}");
    }
    let disk =
        "259,0 0 1 0.000000000 9 A W 2056 + 8 <- (259,1) 8\n259,0 0 2 0.000000100 9 Q W 2056 + 8 [a]\n";
    assert_eq!(gaps(disk), "");
    // A logical volume on a partition.
    let volume = disk.replace("(259,1)", "(253,1)");
    assert!(gaps(&volume).contains("if 259,0 is a partition"));
    // ftrace's events have the numbers and addresses of disks.
    assert_eq!(gaps("a-1 [000] .... 1.000000: block_rq_issue: 259,0 W 4096 () 2048 + 8 [a]\n"), "");
}

/// Records of blktrace, as the kernel lays them out: action, sector, bytes, data.
fn binary(device: u32, records: &[(u32, u64, u32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, (action, sector, length, data)) in records.iter().enumerate() {
        let number = number as u32;
        bytes.extend(0x6561_7407_u32.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend((u64::from(number) * 1000).to_le_bytes());
        bytes.extend(sector.to_le_bytes());
        for word in [*length, *action, 77, device, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(0_u16.to_le_bytes());
        bytes.extend((data.len() as u16).to_le_bytes());
        bytes.extend(data);
    }
    bytes
}

const DISCARD_CATEGORY: u32 = 1 << 29;
const WRITE_CATEGORY: u32 = 1 << 17;

#[test]
fn binary_records_have_ranges_splits_and_partitions() {
    let device = 8 << 20 | 1;
    let remap = [u32::to_be_bytes(device), u32::to_be_bytes(8 << 20)].concat();
    let remap = [remap, 8_u64.to_be_bytes().to_vec()].concat();
    let records = [
        (DISCARD_CATEGORY | 15, 2056, 0, remap.clone()),
        (DISCARD_CATEGORY | 1, 2056, 512 * 300, vec![]),
        (DISCARD_CATEGORY | 13, 2056, 512 * 200, 2256_u64.to_be_bytes().to_vec()),
        (DISCARD_CATEGORY | 1, 9000, 512 * 8, vec![]),
        (DISCARD_CATEGORY | 7, 2056, 512 * 200, vec![]),
        (DISCARD_CATEGORY | 7, 2256, 512 * 108, vec![]),
        (DISCARD_CATEGORY | 8, 2056, 512 * 200, vec![]),
        (DISCARD_CATEGORY | 8, 2256, 512 * 108, vec![]),
        (WRITE_CATEGORY | 1, 2048, 4096, vec![]),
        (WRITE_CATEGORY | 7, 2048, 4096, vec![]),
    ];
    let trace = read(file_of(&binary(device, &records)).path(), None).unwrap();
    let sectors: Vec<_> =
        places(&trace, Discard).iter().map(|(start, length)| (start / 512, length / 512)).collect();
    assert_eq!(sectors, [(8, 200), (208, 100), (9000 - 2048, 8)]);
    assert_eq!(places(&trace, Write), [(0, 4096)]);
    assert!(!trace.header.gaps.join("; ").contains("partition"));
}

#[test]
fn traces_without_an_event_are_refused() {
    let other = "task-1 [000] .... 1.000000: sched_switch: prev_comm=a\n";
    let error = message(&other.repeat(3));
    assert_eq!(
        error,
        "row 3: none of its 3 records makes an event (other events: 3): is it of another format?"
    );
    let error = message("fio version 3 iolog\n0 a add\n");
    assert!(error.contains("none of its 2 records makes an event"), "{error}");
}

/// The text that blkparse prints with `-q`, `-t` and `-s`, and its line about the input before the steps.
#[test]
fn options_of_blkparse_do_not_matter() {
    let plain = std::fs::read_to_string(data("bt.txt")).unwrap();
    let events = text(&plain).unwrap().events;
    let is_step = |line: &&str| line.contains("259,0");
    let steps: String = plain.lines().filter(is_step).map(|line| format!("{line}\n")).collect();
    let timed =
        steps.replace(" [0]\n", " (  640305) [0]\n").replace(" [fio]\n", " (15027837494437650366) [fio]\n");
    let programs = "kworker/0:1H (51)\n Reads Queued:           0,        0KiB\t Writes Queued:     0,  0KiB\n \
                    Allocation wait:        0        \t Allocation wait:         0\n\n";
    for lines in [
        steps.clone(),
        timed,
        format!("Input file bt.blktrace.0 added\n{steps}"),
        format!("Input file bt.blktrace.0 added\n\n{steps}{programs}"),
        format!("{steps}Input file bt.blktrace.0 added\n"),
    ] {
        let trace = text(&lines).unwrap();
        assert_eq!(trace.events, events, "{}", &lines[..200]);
        assert!(!trace.header.gaps.join("; ").contains("another run"));
    }
}

#[test]
fn commands_past_the_block_layer_are_no_events() {
    let lines = blkparse(&[
        (1, "D   R 36 (12 00 00 00 24 00 ..) [udev]"),
        (0, "C   R (12 00 00 00 24 00 ..) [0]"),
        (1, "D   R 8 + 8 [a]"),
        (0, "C   R 8 + 8 [0]"),
    ]);
    let trace = text(&lines).unwrap();
    assert_eq!(brief(&trace), [(0, Read, 4096, 4096, Some(1000))]);
}
