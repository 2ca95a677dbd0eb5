//! Measures the effect of a trim on readers: the 99th percentile of random 4 KiB reads at a fixed rate while 20 GiB of free
//! space are trimmed, by `trimtab trim` and by fstrim in turns, over that shortly before and after, on the same
//! emulated drive in real time. Needs root, FUSE and fio. `-- ROUNDS PROFILE` chooses. Whatever else keeps the
//! processors busy is felt more than any trim.

mod testbed;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use trimtab_core::Bytes;
use trimtab_core::profile::Profile;
use trimtab_core::stats::median;

use testbed::{TRIMTAB, Testbed, run};

const SIZE: Bytes = Bytes(21 << 30);
/// The size of the file that is read, and the reads in a second.
const FILE: &str = "256M";
const RATE: u32 = 300;
/// How long is read before a trim, and after it.
const ALONE: Duration = Duration::from_secs(20);
/// How long fio takes to begin.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long discards may go on once a trim has returned: XFS doesn't wait for them.
const AFTERMATH_MS: u128 = 1000;
/// The most that the 99th percentile may grow by.
const BAR: f64 = 1.2;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let rounds = arguments.next().map_or(3, |rounds| rounds.parse().expect("a number of rounds"));
    let name = arguments.next().unwrap_or_else(|| "corsair-performance-pro".to_owned());
    let profile = Profile::named(&name).expect("a built-in profile");
    println!("{RATE} random 4 KiB reads a second on {name} in real time; medians of {rounds} rounds");
    println!(
        "{:4} {:12} {:>7} {:>7} {:>12} {:>7} {:>12} {:>7} {:>6}",
        "fs", "", "trim s", "reads", "p50 us alone", "p50 us", "p99 us alone", "p99 us", "ratio"
    );
    for fstype in ["xfs", "ext4"] {
        compare(fstype, &profile, rounds);
    }
}

/// The latencies of the readers of a round.
struct Felt {
    trim_s: f64,
    alone: Latencies,
    during: Latencies,
}

struct Latencies {
    reads: usize,
    p50_us: f64,
    p99_us: f64,
}

fn compare(fstype: &str, profile: &Profile, rounds: usize) {
    let testbed = Testbed::new("trim", fstype, profile, SIZE);
    run(fio(&testbed).args(["--rw=write", "--bs=1M", "--end_fsync=1"]));
    let trims = [("trimtab trim", vec![TRIMTAB, "trim", "-q", "--full"]), ("fstrim", vec!["fstrim"])];
    let rounds: Vec<Vec<Felt>> =
        (0..rounds).map(|_| trims.iter().map(|(_, trim)| feel(&testbed, trim)).collect()).collect();
    for (at, (name, _)) in trims.iter().enumerate() {
        let of = |figure: fn(&Felt) -> f64| {
            let figures: Vec<f64> = rounds.iter().map(|round| figure(&round[at])).collect();
            median(&figures).expect("there are rounds")
        };
        let bar = if at == 0 { format!("  the bar is {BAR}") } else { String::new() };
        println!(
            "{fstype:4} {name:12} {:>7.1} {:>7} {:>12.0} {:>7.0} {:>12.0} {:>7.0} {:>6.2}{bar}",
            of(|felt| felt.trim_s),
            of(|felt| felt.during.reads as f64),
            of(|felt| felt.alone.p50_us),
            of(|felt| felt.during.p50_us),
            of(|felt| felt.alone.p99_us),
            of(|felt| felt.during.p99_us),
            of(|felt| felt.during.p99_us / felt.alone.p99_us),
        );
    }
    for kind in ["lat", "slat", "clat"] {
        let _ = fs::remove_file(testbed.place.with_extension(format!("log_{kind}.1.log")));
    }
    testbed.remove();
}

/// Returns the fio command that writes the file or reads it.
fn fio(testbed: &Testbed) -> Command {
    let mut fio = Command::new("fio");
    fio.args(["--name=read", "--ioengine=psync", "--direct=1", "--minimal", &format!("--size={FILE}")]);
    fio.arg(format!("--filename={}", testbed.place.join("read").display())).stdout(Stdio::null());
    fio
}

/// Reads before, while and after `trim` is at work.
fn feel(testbed: &Testbed, trim: &[&str]) -> Felt {
    // ext4 remembers what was trimmed while it is mounted.
    testbed.unmount();
    testbed.mount();
    let log = testbed.place.with_extension("log");
    let mut reader = fio(testbed);
    reader.args(["--rw=randread", "--bs=4k", "--time_based", "--runtime=1d", "--log_unix_epoch=1"]);
    reader.arg(format!("--rate_iops={RATE}")).arg(format!("--write_lat_log={}", log.display()));
    let mut reader = reader.spawn().expect("fio is there");
    thread::sleep(WARM_UP);
    let begun = now_ms();
    thread::sleep(ALONE);
    let start = now_ms();
    run(Command::new(trim[0]).args(&trim[1..]).arg(&testbed.place));
    let end = now_ms();
    thread::sleep(ALONE);
    let over = now_ms();
    stop(&mut reader);
    let lines = fs::read_to_string(log.with_extension("log_lat.1.log")).expect("fio keeps its log");
    let trimmed = start..end + AFTERMATH_MS;
    Felt {
        trim_s: (end - start) as f64 / 1e3,
        alone: latencies(&lines, |at| (begun..over).contains(&at) && !trimmed.contains(&at)),
        during: latencies(&lines, |at| trimmed.contains(&at)),
    }
}

/// The latencies of the reads in fio's log that were done at the times that `counts` takes.
fn latencies(log: &str, counts: impl Fn(u128) -> bool) -> Latencies {
    let fields = |line: &str| {
        let mut fields = line.split(',').map(str::trim);
        Some((fields.next()?.parse::<u128>().ok()?, fields.next()?.parse::<u64>().ok()?))
    };
    let within = log.lines().filter_map(fields).filter(|(at, _)| counts(*at));
    let mut latencies: Vec<u64> = within.map(|(_, ns)| ns).collect();
    latencies.sort_unstable();
    let at = |share: f64| {
        let rank = (latencies.len() as f64 * share).ceil() as usize;
        latencies.get(rank.saturating_sub(1)).copied().unwrap_or_default() as f64 / 1e3
    };
    Latencies { reads: latencies.len(), p50_us: at(0.5), p99_us: at(0.99) }
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set").as_millis()
}

/// Ends fio so that it writes its logs.
fn stop(fio: &mut Child) {
    run(Command::new("kill").args(["-INT", &fio.id().to_string()]));
    fio.wait().expect("fio ends");
}
