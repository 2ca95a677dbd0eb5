//! Files of every format in which bytes were changed. The events that are read are those that a second, simple reader
//! counts, or the file is refused.

use std::collections::BTreeMap;

use proptest::prelude::{ProptestConfig, TestCaseError, any, prop, prop_assert, prop_assert_eq, proptest};
use proptest::sample::Index;
use trimtab_core::trace::EventKind::{self, Discard, Flush, Read, Write};
use trimtab_trace::Format;

use super::{Trace, file_of, read};

/// A request that a file is made of; addresses and lengths in sectors of 512 bytes.
#[derive(Debug, Clone)]
struct Request {
    step: u64,
    device: u8,
    kind: u8,
    start: u64,
    sectors: u64,
}

/// The count of a line by the second reader.
enum Counted {
    Event(EventKind, u64, u64),
    /// It makes no event.
    Nothing,
    /// It must be refused.
    Wrong,
    /// The second reader is too simple for it.
    Unsure,
}

use Counted::{Event, Nothing, Unsure, Wrong};

/// The events of each kind, their bytes, and the sum of their first bytes.
type Sums = BTreeMap<&'static str, (u64, u64, u64)>;

fn add(sums: &mut Sums, kind: EventKind, start: u64, length: u64) {
    let of = sums.entry(kind.name()).or_default();
    *of = (of.0 + 1, of.1.wrapping_add(length), of.2.wrapping_add(start));
}

fn sums(trace: &Trace) -> Sums {
    let mut sums = Sums::new();
    trace.events.iter().for_each(|it| add(&mut sums, it.kind, it.extent.start.0, it.extent.len().0));
    sums
}

/// The verdict of the second reader on a file.
#[derive(Debug, PartialEq)]
enum Verdict {
    Sums(Sums),
    /// The sums, and what may be added: requests without an issue that completed.
    AtLeast(Sums, Sums),
    Refuse,
    Unsure,
}

/// Counts a text line by line.
fn lines(text: &str, mut count: impl FnMut(&str) -> Counted) -> Verdict {
    let mut sums = Sums::new();
    let (mut is_wrong, mut is_unsure) = (false, false);
    for line in text.split('\n').filter(|line| !line.is_empty()) {
        match count(line) {
            Event(kind, start, length) => add(&mut sums, kind, start, length),
            Nothing => {}
            Wrong => is_wrong = true,
            Unsure => is_unsure = true,
        }
    }
    if is_unsure {
        Verdict::Unsure
    } else if is_wrong {
        Verdict::Refuse
    } else {
        Verdict::Sums(sums)
    }
}

/// A number without a sign.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Whether a text is digits, perhaps with more behind a point.
fn is_decimal(text: &str) -> bool {
    let (whole, below) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    are_digits(whole) && are_digits(below)
}

/// An event of a kind, a start and a length in units of these bytes, if there are all of them.
fn event(kind: Option<EventKind>, start: &str, length: &str, units: (u64, u64)) -> Counted {
    match (kind, number(start), number(length)) {
        (Some(kind), Some(start), Some(length)) => {
            Event(kind, start.wrapping_mul(units.0), length.wrapping_mul(units.1))
        }
        _ => Wrong,
    }
}

fn letter(text: &str, read: &str, write: &str) -> Option<EventKind> {
    if text == read {
        Some(Read)
    } else if text == write {
        Some(Write)
    } else {
        None
    }
}

/// A format: how a file of it is written, and how it is counted.
struct Case {
    format: Format,
    head: &'static str,
    line: fn(&Request, time: u64) -> String,
    count: fn(&str) -> Verdict,
}

fn is_write(request: &Request) -> usize {
    usize::from(request.kind % 2)
}

/// The fields of a line between commas.
fn fields(line: &str) -> Vec<&str> {
    line.split(',').map(str::trim).collect()
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            format: Format::Msr,
            head: "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n",
            line: |it, time| {
                let kind = ["Read", "Write"][is_write(it)];
                let (ticks, bytes) = (128_166_372_003_061_629 + time / 100, it.sectors * 512);
                format!("{ticks},usr,{},{kind},{},{bytes},41286\n", it.device, it.start * 512)
            },
            count: |text| {
                lines(text, |line| match fields(line)[..] {
                    ["Timestamp", _, _, _, _, _, _] => Nothing,
                    [time, _, _, kind, start, length, latency]
                        if number(time).is_some() && number(latency).is_some() =>
                    {
                        event(letter(kind, "Read", "Write"), start, length, (1, 1))
                    }
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::Alibaba,
            head: "",
            line: |it, time| {
                let (kind, time) = (["R", "W"][is_write(it)], 1_577_808_000_000_626 + time / 1000);
                format!("{},{kind},{},{},{time}\n", it.device, it.start * 512, it.sectors * 512)
            },
            count: |text| {
                lines(text, |line| match fields(line)[..] {
                    ["device_id", _, _, _, _] => Nothing,
                    [_, kind, start, length, time] if number(time).is_some() => {
                        event(letter(kind, "R", "W"), start, length, (1, 1))
                    }
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::Tencent,
            head: "",
            line: |it, time| {
                let seconds = 1_538_323_199 + time / 1_000_000_000;
                format!("{seconds},{},{},{},{}\n", it.start, it.sectors, is_write(it), it.device)
            },
            count: |text| {
                lines(text, |line| match fields(line)[..] {
                    ["Timestamp", _, _, _, _] => Nothing,
                    [time, start, length, kind, _] if number(time).is_some() => {
                        event(letter(kind, "0", "1"), start, length, (512, 512))
                    }
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::CloudPhysics,
            head: "",
            line: |it, time| {
                let kind = ["r", "w"][is_write(it)];
                format!("{},{},{kind},{}\n", time / 1000, it.start, it.sectors * 512)
            },
            count: |text| {
                lines(text, |line| match fields(line)[..] {
                    ["ts" | "timestamp", _, _, _] => Nothing,
                    [time, start, kind, length] if number(time).is_some() => {
                        event(letter(&kind.to_lowercase(), "r", "w"), start, length, (512, 1))
                    }
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::CloudPhysics,
            head: "version,time,op,size,lbn\n",
            line: |it, time| {
                let opcode = ["28", "2a", "88", "8A", "42", "35"][usize::from(it.kind % 6)];
                format!("1,{},{opcode},{},{}\n", time / 1_000_000_000, it.sectors * 512, it.start)
            },
            count: |text| {
                // Without the names of the columns it is of the other kind, and is refused.
                if !text.starts_with("version,time,op,size,lbn\n") {
                    return Verdict::Unsure;
                }
                lines(text, |line| match fields(line)[..] {
                    ["version", "time", "op", "size", "lbn"] => Nothing,
                    [_, time, opcode, length, start] => match &*opcode.to_lowercase() {
                        "8" | "08" | "28" | "a8" | "88" => event(Some(Read), start, length, (512, 1)),
                        "a" | "0a" | "2a" | "aa" | "8a" | "2e" | "8e" => {
                            event(Some(Write), start, length, (512, 1))
                        }
                        "35" | "91" if number(time).is_some() => Event(Flush, 0, 0),
                        _ if opcode.len() < 3 && opcode.parse::<i64>().is_ok_and(|it| it > 0) => Nothing,
                        _ => Unsure,
                    },
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::Systor,
            head: "Timestamp,Response,IOType,LUN,Offset,Size\n",
            line: |it, time| {
                let kind = ["R", "W", ""][usize::from(it.kind % 3)];
                let (second, below) = (1_456_135_200 + time / 1_000_000_000, time % 1_000_000_000);
                let (start, length) = (it.start * 512, it.sectors * 512);
                format!("{second}.{below:09},0.000806000,{kind},{},{start},{length}\n", it.device)
            },
            count: |text| {
                lines(text, |line| match fields(line)[..] {
                    ["Timestamp", _, _, _, _, _] | [_, _, "", _, _, _] => Nothing,
                    [time, response, kind, _, start, length]
                        if is_decimal(time) && (response.is_empty() || is_decimal(response)) =>
                    {
                        event(letter(kind, "R", "W"), start, length, (1, 1))
                    }
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::Spc,
            head: "",
            line: |it, time| {
                let kind = ["R", "w"][is_write(it)];
                let time = format!("{}.{:06}", time / 1_000_000_000, time / 1000 % 1_000_000);
                format!("{},{},{},{kind},{time},more\n", it.device, it.start, it.sectors * 512)
            },
            count: |text| {
                lines(text, |line| match fields(line)[..] {
                    [_, start, length, kind, time, ..] if is_decimal(time) => {
                        event(letter(&kind.to_uppercase(), "R", "W"), start, length, (512, 1))
                    }
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::Fiu,
            head: "",
            line: |it, time| {
                let kind = ["R", "W"][is_write(it)];
                format!("{time} 4892 my daemon {} {} {kind} 6 {} 531e779b\n", it.start, it.sectors, it.device)
            },
            count: |text| {
                lines(text, |line| match line.trim().split(' ').collect::<Vec<_>>()[..] {
                    [time, _, _, .., start, length, kind, _, _, _] if number(time).is_some() => {
                        event(letter(kind, "R", "W"), start, length, (512, 512))
                    }
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::Midas,
            head: "",
            line: |it, time| {
                let (kind, time) = (["0", "1", "3", "2"][usize::from(it.kind % 4)], decimals(time));
                format!("{time} {kind} {} {} 4\n", it.start / 8, it.sectors.div_ceil(8) * 4096)
            },
            count: |text| {
                lines(text, |line| match words(line)[..] {
                    [time, kind, start, length, ref stream @ ..]
                        if stream.len() < 2 && stream.iter().all(|stream| number(stream).is_some()) =>
                    {
                        let of = letter(kind, "0", "1").or((kind == "3").then_some(Discard));
                        let is_whole = number(length).is_some_and(|length| length.is_multiple_of(512));
                        if kind == "2" {
                            Nothing
                        } else if is_whole && is_decimal(time) {
                            event(of, start, length, (4096, 1))
                        } else {
                            Wrong
                        }
                    }
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::Mobile,
            head: "proces,device,rw_flag,sector,size,timestamp\n",
            line: |it, time| {
                let kind = ["R", "W"][is_write(it)];
                format!(
                    "\"app, {}-9\",8388608,{kind},{},{},{}\n",
                    it.device,
                    it.start,
                    it.sectors,
                    decimals(time)
                )
            },
            count: |text| {
                lines(text, |line| match fields(line)[..] {
                    _ if line.ends_with(",device,rw_flag,sector,size,timestamp") => Nothing,
                    [_, .., _, kind, start, length, time] if is_decimal(time) => {
                        event(letter(kind, "R", "W"), start, length, (512, 512))
                    }
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::DiskSim,
            head: "",
            line: |it, time| {
                let time = format!("{}.{:06}", time / 1_000_000, time % 1_000_000);
                format!("{time} {} {} {} {}\n", it.device, it.start, it.sectors, it.kind % 4)
            },
            count: |text| {
                lines(text, |line| match words(line)[..] {
                    [time, device, start, length, flag] if number(device).is_some() => {
                        // A time without decimals is one, too, and so is one that ends in a point.
                        if !is_decimal(time) {
                            return if is_decimal(&format!("{time}0")) { Unsure } else { Wrong };
                        }
                        let flags = u64::from_str_radix(flag.strip_prefix("0x").unwrap_or(flag), 16);
                        let flags = flags.ok().filter(|flags| *flags <= 0xffff && !flag.contains('+'));
                        event(
                            flags.map(|it| if it & 1 > 0 { Read } else { Write }),
                            start,
                            length,
                            (512, 512),
                        )
                    }
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::MqSim,
            head: "",
            line: |it, time| format!("{time} {} {} {} {}\n", it.device, it.start, it.sectors, it.kind % 2),
            count: |text| {
                lines(text, |line| match words(line)[..] {
                    [time, device, start, length, flag]
                        if number(time).is_some() && number(device).is_some() =>
                    {
                        event(letter(flag, "1", "0"), start, length, (512, 512))
                    }
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::Biosnoop,
            head: "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n",
            line: |it, time| {
                let (kind, bytes) = (["R", "W"][is_write(it)], it.sectors * 512);
                let time = format!("{}.{:06}", time / 1_000_000_000, time / 1000 % 1_000_000);
                format!(
                    "{time:<11} Web Content    3011    sd{:<7} {kind} {:<10} {bytes:<7} 0.27\n",
                    it.device, it.start
                )
            },
            count: |text| {
                if !text
                    .starts_with("TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n")
                {
                    return Verdict::Unsure;
                }
                lines(text, |line| match words(line)[..] {
                    ["TIME(s)", ..] => Nothing,
                    [time, .., pid, _, kind, start, bytes, latency]
                        if number(pid).is_some() && is_decimal(time) && is_decimal(latency) =>
                    {
                        match kind {
                            "R" | "W" if number(bytes) == Some(0) => Nothing,
                            "R" | "W" => event(letter(kind, "R", "W"), start, bytes, (512, 1)),
                            _ => Unsure,
                        }
                    }
                    [_, .., latency] if latency.ends_with('.') || latency.starts_with('.') => Unsure,
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::Csv,
            head: "time_ns,device,kind,start,length\n",
            line: |it, time| {
                let kind = ["read", "write", "discard", "flush"][usize::from(it.kind % 4)];
                format!("{time},sd{},{kind},{},{}\n", it.device, it.start * 512, it.sectors * 512)
            },
            count: |text| {
                if !text.starts_with("time_ns,device,kind,start,length\n") {
                    return Verdict::Unsure;
                }
                let mut is_first = true;
                lines(text, |line| match fields(line)[..] {
                    _ if std::mem::take(&mut is_first) => Nothing,
                    _ if line.contains('"') => Unsure,
                    [time, _, kind, start, length] => {
                        // Numbers with a point or a sign are read, too.
                        if [time, start, length].iter().any(|text| text.contains(['.', '-', '+'])) {
                            return Unsure;
                        }
                        let kind = EventKind::ALL.into_iter().find(|it| it.name() == kind);
                        if number(time).is_some() { event(kind, start, length, (1, 1)) } else { Wrong }
                    }
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::Fio1,
            head: "",
            line: |it, _| format!("{}, {}, {}\n", it.kind % 2, it.start * 512, it.sectors * 512),
            count: |text| {
                lines(text, |line| match fields(line)[..] {
                    [kind, start, length] => event(letter(kind, "0", "1"), start, length, (1, 1)),
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::Fio2,
            head: "fio version 2 iolog\n/a add\n/a open\n",
            line: |it, _| fio_action(it),
            count: |text| {
                lines(text, |line| match words(line)[..] {
                    _ if line.starts_with("fio version") => Nothing,
                    [_, "wait", time, ..] => {
                        if number(time).is_some() {
                            Nothing
                        } else {
                            Wrong
                        }
                    }
                    [_, ref rest @ ..] => fio_counted(rest),
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::Fio3,
            head: "fio version 3 iolog\n0 /a add\n",
            line: |it, time| format!("{} {}", time / 1000, fio_action(it)),
            count: |text| {
                lines(text, |line| match words(line)[..] {
                    _ if line.starts_with("fio version") => Nothing,
                    [time, _, ref rest @ ..] if number(time).is_some() => fio_counted(rest),
                    _ => Wrong,
                })
            },
        },
        Case {
            format: Format::Blkparse,
            head: "",
            line: |it, time| {
                let (device, request) = (it.device, format!("{} + {}", it.start, it.sectors));
                let letters = ["R", "WS", "D", "FWFS"][usize::from(it.kind % 4)];
                let line = |after: u64, action: &str, by: &str| {
                    let time = time + after;
                    let at = format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000);
                    format!(
                        "  8,{device}    0        7     {at}   93  {action}  {letters} {request} [{by}]\n"
                    )
                };
                line(0, "Q", "fio") + &line(10, "G", "fio") + &line(20, "D", "fio") + &line(30, "C", "0")
            },
            count: |text| steps(text, blkparse_step),
        },
        Case {
            format: Format::Ftrace,
            head: "# tracer: nop\n",
            line: |it, time| {
                let (device, request) = (it.device, format!("{} + {}", it.start, it.sectors));
                let letters = ["R", "WS", "D", "N"][usize::from(it.kind % 4)];
                let line = |after: u64, event: &str, bytes: &str, by: &str| {
                    let time = time / 1000 + after;
                    let at = format!("{}.{:06}", time / 1_000_000, time % 1_000_000);
                    format!(
                        "  fio-93  [000] ....  {at}: {event}: 8,{device} {letters} {bytes}{request} [{by}]\n"
                    )
                };
                line(0, "block_bio_queue", "", "fio")
                    + &line(1, "block_rq_issue", "4096 () ", "fio")
                    + &line(2, "block_rq_complete", "() ", "0")
            },
            count: |text| steps(text, ftrace_step),
        },
    ]
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn decimals(time: u64) -> String {
    format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000)
}

fn fio_action(it: &Request) -> String {
    let (start, length) = (it.start * 512, it.sectors * 512);
    match it.kind % 5 {
        0 => format!("/a read {start} {length}\n"),
        1 => format!("/a write {start} {length}\n"),
        2 => format!("/a trim {start} {length}\n"),
        3 => "/a datasync 0 0\n".to_owned(),
        _ => "/a close\n".to_owned(),
    }
}

fn fio_counted(rest: &[&str]) -> Counted {
    match rest {
        ["sync" | "datasync", ..] => Event(Flush, 0, 0),
        ["add" | "open" | "close" | "sync_file_range", ..] => Nothing,
        [action, start, length, ..] => {
            let kind = letter(action, "read", "write").or((*action == "trim").then_some(Discard));
            event(kind, start, length, (1, 1))
        }
        _ => Wrong,
    }
}

/// A step: device, action, kind, first byte, bytes. Lines that make no step are nothing.
type Step = Option<(String, char, EventKind, u64, u64)>;

/// Counts the steps of the layer that has a device's events.
fn steps(text: &str, step: fn(&str) -> Result<Step, ()>) -> Verdict {
    let mut all: BTreeMap<String, Vec<(char, EventKind, u64, u64)>> = BTreeMap::new();
    for line in text.split('\n').filter(|line| !line.is_empty()) {
        match step(line) {
            Err(()) => return Verdict::Unsure,
            Ok(None) => {}
            Ok(Some((device, action, kind, start, length))) => {
                all.entry(device).or_default().push((action, kind, start, length));
            }
        }
    }
    layers(all.values())
}

/// Counts the steps of the layer that has a device's events.
fn layers<'a>(devices: impl Iterator<Item = &'a Vec<(char, EventKind, u64, u64)>>) -> Verdict {
    let (mut sums, mut more) = (Sums::new(), Sums::new());
    for steps in devices {
        let has = |action: &char| steps.iter().any(|step| step.0 == *action);
        let Some(layer) = ['D', 'Q', 'C'].into_iter().find(has) else { continue };
        for (_, kind, start, length) in steps.iter().filter(|step| step.0 == layer) {
            add(&mut sums, *kind, *start, *length);
        }
        // Before the first issue, a device looks like one whose driver handles bios.
        let is_issued = |place: usize| {
            let of = steps[place];
            // A bio is queued before its issue, and a request is completed after that.
            let among = if of.0 == 'C' { &steps[..place] } else { &steps[..] };
            among.iter().any(|step| step.0 == 'D' && (step.1, step.2 + step.3) == (of.1, of.2 + of.3))
        };
        for (place, step) in steps.iter().enumerate() {
            if layer == 'D' && step.0 != 'D' && !is_issued(place) {
                add(&mut more, step.1, step.2, step.3);
            }
        }
    }
    if more.is_empty() { Verdict::Sums(sums) } else { Verdict::AtLeast(sums, more) }
}

fn request(device: &str, action: char, letters: &str, start: &str, sectors: &str) -> Result<Step, ()> {
    let is_device = device.split_once(',').is_some_and(|(major, minor)| {
        [major, minor].iter().all(|part| !part.is_empty() && number(part).is_some())
    });
    let kind = match letters {
        "R" => Read,
        "WS" | "FWFS" => Write,
        "D" => Discard,
        "N" => EventKind::WriteZeroes,
        _ => return Err(()),
    };
    match (number(start), number(sectors)) {
        (Some(start), Some(sectors)) if is_device && sectors > 0 && start < 1 << 41 && sectors < 1 << 41 => {
            Ok(Some((device.to_owned(), action, kind, start * 512, sectors * 512)))
        }
        _ => Err(()),
    }
}

fn blkparse_step(line: &str) -> Result<Step, ()> {
    let [device, _, sequence, time, pid, action, letters, start, "+", sectors, _] = words(line)[..] else {
        return Err(());
    };
    let is_time = time.split_once('.').is_some_and(|(_, below)| below.len() == 9) && is_decimal(time);
    if !is_time || number(sequence).is_none() || number(pid).is_none() {
        return Err(());
    }
    match action {
        "Q" | "D" | "C" => request(device, action.chars().next().ok_or(())?, letters, start, sectors),
        "G" | "R" | "W" => Ok(None),
        _ => Err(()),
    }
}

fn ftrace_step(line: &str) -> Result<Step, ()> {
    if line.starts_with('#') {
        return Ok(None);
    }
    let (process, rest) = line.split_once("[000] ....  ").ok_or(())?;
    let words = words(rest);
    let (time, event) = (words.first().ok_or(())?, words.get(1).ok_or(())?);
    if process != "  fio-93  " || !time.strip_suffix(':').is_some_and(is_decimal) {
        return Err(());
    }
    match (*event, &words[2..]) {
        ("block_bio_queue:", [device, letters, start, "+", sectors, _]) => {
            request(device, 'Q', letters, start, sectors)
        }
        ("block_rq_issue:", [device, letters, "4096", "()", start, "+", sectors, _]) => {
            request(device, 'D', letters, start, sectors)
        }
        ("block_rq_complete:", [device, letters, "()", start, "+", sectors, _]) => {
            request(device, 'C', letters, start, sectors)
        }
        _ => Err(()),
    }
}

/// A case's file of requests, each in a place of its own.
fn file(case: &Case, requests: &[Request]) -> String {
    let (mut text, mut time) = (case.head.to_owned(), 0);
    for (number, request) in requests.iter().enumerate() {
        time += request.step;
        let start = number as u64 * 10_000 + request.start;
        text += &(case.line)(&Request { start, ..request.clone() }, time);
    }
    text
}

fn compare(bytes: &[u8], format: Format, verdict: &Verdict) -> Result<(), TestCaseError> {
    match (read(file_of(bytes).path(), Some(format)), verdict) {
        (Ok(trace), Verdict::Sums(expected)) => prop_assert_eq!(&sums(&trace), expected),
        (Ok(trace), Verdict::AtLeast(least, more)) => {
            let none = (0, 0, 0);
            for kind in EventKind::ALL.map(EventKind::name) {
                let of = |sums: &Sums| sums.get(kind).copied().unwrap_or(none);
                let (found, least, more) = (of(&sums(&trace)), of(least), of(more));
                let is_between = (least.0..=least.0 + more.0).contains(&found.0)
                    && (least.1..=least.1.saturating_add(more.1)).contains(&found.1);
                prop_assert!(is_between, "{}: {:?}, not {:?} and up to {:?} more", kind, found, least, more);
            }
        }
        (Ok(_), Verdict::Refuse) => prop_assert!(false, "it is read"),
        _ => {}
    }
    Ok(())
}

fn requests() -> impl proptest::strategy::Strategy<Value = Vec<Request>> {
    use proptest::strategy::Strategy;
    let request = (1_000_u64..10_000_000, 0..3_u8, any::<u8>(), 0..5000_u64, 1..64_u64);
    let request = request.prop_map(|(step, device, kind, start, sectors)| Request {
        step,
        device,
        kind,
        start,
        sectors,
    });
    prop::collection::vec(request, 1..12)
}

/// Every case, without a change: the second reader is sure of all, and both agree.
#[test]
fn both_readers_agree_on_whole_files() {
    let request = |kind: u8| Request {
        step: 5_000_000,
        device: kind % 2,
        kind,
        start: u64::from(kind) * 8,
        sectors: 9,
    };
    let requests: Vec<_> = (0..12).map(request).collect();
    for case in cases() {
        let text = file(&case, &requests);
        let Verdict::Sums(expected) = (case.count)(&text) else { panic!("{}: {text}", case.format) };
        let found = read(file_of(text.as_bytes()).path(), None).unwrap();
        assert_eq!(sums(&found), expected, "{}", case.format);
        assert_eq!(found.header.origin, case.format.name());
        assert!(expected.values().map(|it| it.0).sum::<u64>() >= 6, "{}", case.format);
    }
    let texts: Vec<_> = cases().iter().map(|case| case.format).collect();
    // The others are binary, and are below or in tests of their own.
    let binary = [Format::Trimtab, Format::Blktrace, Format::Vscsi, Format::Arrow];
    assert!(Format::ALL.iter().all(|format| texts.contains(format) != binary.contains(format)));
}

/// Records of blktrace, and what they count: the layer of each device.
fn blktrace(bytes: &[u8]) -> Verdict {
    let mut records = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some(record) = rest.get(..48) else { return Verdict::Refuse };
        let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
        if word(0) != 0x6561_7407 {
            return Verdict::Refuse;
        }
        let data = usize::from(u16::from_le_bytes([record[46], record[47]]));
        let Some(behind) = rest.get(48 + data..) else { return Verdict::Refuse };
        rest = behind;
        let (action, category, bytes) = (word(28) & 0xff, word(28) >> 16, u64::from(word(24)));
        let sector = u64::from(word(16)) | u64::from(word(20)) << 32;
        let action = match action {
            1 => 'Q',
            7 => 'D',
            8 => 'C',
            // Merges, requeues, splits and remaps.
            2 | 3 | 6 | 13 | 15 => return Verdict::Unsure,
            _ => continue,
        };
        let kind = match category {
            _ if category & (1 << 9 | 1 << 10) > 0 => continue,
            _ if category & 1 << 13 > 0 => Discard,
            _ if bytes == 0 => return Verdict::Unsure,
            _ if category & 2 > 0 => Write,
            _ => Read,
        };
        let time = u64::from(word(8)) | u64::from(word(12)) << 32;
        records.push(((time, word(4)), word(36), (action, kind, (sector % (1 << 41)) * 512, bytes)));
    }
    records.sort_by_key(|(time, ..)| *time);
    let mut all: BTreeMap<u32, Vec<(char, EventKind, u64, u64)>> = BTreeMap::new();
    for (_, device, step) in records {
        all.entry(device).or_default().push(step);
    }
    layers(all.values())
}

fn blktrace_file(requests: &[Request]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, it) in requests.iter().enumerate() {
        for (place, action) in [1_u32, 7, 8].into_iter().enumerate() {
            let category = [1_u32 << 16, 2 << 16, (2 | 1 << 13) << 16][usize::from(it.kind % 3)];
            let time = (number * 3 + place) as u64 * 1000;
            bytes.extend(0x6561_7407_u32.to_le_bytes());
            bytes.extend((number as u32).to_le_bytes());
            bytes.extend(time.to_le_bytes());
            bytes.extend((number as u64 * 10_000 + it.start).to_le_bytes());
            for word in [it.sectors as u32 * 512, action | category, 77, 8 << 20 | u32::from(it.device), 0, 0]
            {
                bytes.extend(word.to_le_bytes());
            }
        }
    }
    bytes
}

/// Records of vscsi of a version, and what they count.
fn vscsi(bytes: &[u8], version: u8) -> Verdict {
    let (length, opcode_at, bytes_at) = if version == 1 { (32, 12, 4) } else { (40, 0, 8) };
    let mut sums = Sums::new();
    for record in bytes.chunks(length) {
        if record.len() < length || record[opcode_at + 3] != version {
            return Verdict::Refuse;
        }
        let bytes = u32::from_le_bytes(record[bytes_at..bytes_at + 4].try_into().unwrap());
        let sector = u64::from_le_bytes(record[16..24].try_into().unwrap());
        match u16::from_le_bytes([record[opcode_at], record[opcode_at + 1]]) {
            8 | 0x28 | 0xa8 | 0x88 => add(&mut sums, Read, sector.wrapping_mul(512), bytes.into()),
            0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0x8e => {
                add(&mut sums, Write, sector.wrapping_mul(512), bytes.into());
            }
            0x35 | 0x91 => add(&mut sums, Flush, 0, 0),
            _ => {}
        }
    }
    Verdict::Sums(sums)
}

fn vscsi_file(requests: &[Request], version: u8) -> Vec<u8> {
    let record = |(number, it): (usize, &Request)| {
        let opcode = [0x28_u16, 0x2a, 0x35, 0x8a, 0x42][usize::from(it.kind % 5)];
        (opcode, number as u64 * 10_000 + it.start, it.sectors as u32 * 512, number as u64 * 9)
    };
    let records: Vec<_> = requests.iter().enumerate().map(record).collect();
    super::formats::vscsi(version.into(), &records)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changed_texts_are_counted_or_refused(
        case in any::<Index>(),
        requests in requests(),
        edits in prop::collection::vec((any::<Index>(), any::<Index>()), 0..3),
        removed in prop::option::of(any::<Index>()),
    ) {
        let cases = cases();
        let case = case.get(&cases);
        let mut bytes = file(case, &requests).into_bytes();
        let others = b"0123456789,. -+xRWrwDQCS\n\"";
        for (place, other) in edits {
            let place = place.index(bytes.len());
            bytes[place] = *other.get(others);
        }
        if let Some(place) = removed {
            bytes.remove(place.index(bytes.len()));
        }
        let text = String::from_utf8(bytes.clone()).unwrap();
        compare(&bytes, case.format, &(case.count)(&text))?;
    }

    #[test]
    fn changed_records_are_counted_or_refused(
        requests in requests(),
        edits in prop::collection::vec((any::<Index>(), any::<u8>()), 0..3),
        cut in prop::option::of(any::<Index>()),
    ) {
        for (format, mut bytes, count) in [
            (Format::Blktrace, blktrace_file(&requests), blktrace as fn(&[u8]) -> Verdict),
            (Format::Vscsi, vscsi_file(&requests, 1), |bytes| vscsi(bytes, 1)),
            (Format::Vscsi, vscsi_file(&requests, 2), |bytes| vscsi(bytes, 2)),
        ] {
            let whole = count(&bytes);
            prop_assert!(matches!(whole, Verdict::Sums(_)));
            if let Ok(trace) = read(file_of(&bytes).path(), None) {
                prop_assert_eq!(Verdict::Sums(sums(&trace)), whole);
            }
            for (place, byte) in &edits {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            if let Some(cut) = &cut {
                bytes.truncate(cut.index(bytes.len()) + 1);
            }
            compare(&bytes, format, &count(&bytes))?;
        }
    }
}
