//! Measures the effect of a trim on readers: the latency of random 4 KiB reads at a fixed rate while the free space of a new
//! file system is trimmed, by `trimtab trim --full` and by fstrim in turns, over that shortly before and after, on the
//! same emulated drive in real time. Needs root, FUSE and fio. `-- ROUNDS PROFILE SIZE RATE` chooses. Whatever else keeps
//! the processors busy is felt more than any trim.

mod testbed;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use trimtab_core::Bytes;
use trimtab_core::profile::Profile;
use trimtab_core::stats::median;

use testbed::{TRIMTAB, Testbed, run};

/// The size of the file that is read.
const FILE: &str = "256M";
/// How long is read before a trim, and after it.
const ALONE: Duration = Duration::from_secs(20);
/// How long fio takes to begin.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long discards may go on once a trim has returned: XFS doesn't wait for them.
const AFTERMATH_MS: u128 = 1000;
/// The most that the 99th and the 99.9th percentile, and the longest read, may grow by.
const BARS: &str = "the bars are 1.2, 1.2 and 2";

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let rounds = arguments.next().map_or(3, |rounds| rounds.parse().expect("a number of rounds"));
    let name = arguments.next().unwrap_or_else(|| "ocz-agility-3".to_owned());
    let profile = Profile::named(&name).expect("a built-in profile");
    let size: Bytes = arguments.next().map_or(Bytes(8 << 30), |size| size.parse().expect("a size"));
    let rate = arguments.next().map_or(200, |rate| rate.parse().expect("a number of reads a second"));
    println!(
        "{rate} random 4 KiB reads a second on {name} ({size}) in real time; medians of {rounds} rounds; {BARS}"
    );
    println!(
        "{:4} {:12} {:>6} {:>6} {:>26} {:>26} {:>20}",
        "fs", "", "trim s", "reads", "alone p99, p99.9, max ms", "beside it", "ratios"
    );
    for fstype in ["ext4", "xfs"] {
        compare(fstype, &profile, size, rate, rounds);
    }
}

/// The latencies of the readers of a round.
struct Felt {
    trim_s: f64,
    alone: Latencies,
    during: Latencies,
}

/// How many reads there were, and in ms the 99th and the 99.9th percentile of their latency and the longest.
struct Latencies {
    reads: usize,
    tail_ms: [f64; 3],
}

fn compare(fstype: &str, profile: &Profile, size: Bytes, rate: u32, rounds: usize) {
    let testbed = Testbed::new("trim", fstype, profile, size);
    run(fio(&testbed).args(["--rw=write", "--bs=1M", "--end_fsync=1"]));
    let trims = [("trimtab trim", vec![TRIMTAB, "trim", "-q", "--full"]), ("fstrim", vec!["fstrim"])];
    let rounds: Vec<Vec<Felt>> =
        (0..rounds).map(|_| trims.iter().map(|(_, trim)| feel(&testbed, rate, trim)).collect()).collect();
    for (at, (name, _)) in trims.iter().enumerate() {
        let of = |figure: &dyn Fn(&Felt) -> f64| {
            let figures: Vec<f64> = rounds.iter().map(|round| figure(&round[at])).collect();
            median(&figures).expect("there are rounds")
        };
        let tail = |figure: &dyn Fn(&Felt, usize) -> f64| -> String {
            (0..3).map(|part| format!(" {:8.2}", of(&|felt| figure(felt, part)))).collect()
        };
        println!(
            "{fstype:4} {name:12} {:>6.1} {:>6} {} {} {}",
            of(&|felt| felt.trim_s),
            of(&|felt| felt.during.reads as f64),
            tail(&|felt, part| felt.alone.tail_ms[part]),
            tail(&|felt, part| felt.during.tail_ms[part]),
            tail(&|felt, part| felt.during.tail_ms[part] / felt.alone.tail_ms[part]),
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
fn feel(testbed: &Testbed, rate: u32, trim: &[&str]) -> Felt {
    // ext4 remembers what was trimmed while it is mounted.
    testbed.unmount();
    testbed.mount();
    let log = testbed.place.with_extension("log");
    let mut reader = fio(testbed);
    reader.args(["--rw=randread", "--bs=4k", "--time_based", "--runtime=1d", "--log_unix_epoch=1"]);
    reader.arg(format!("--rate_iops={rate}")).arg(format!("--write_lat_log={}", log.display()));
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
        latencies.get(rank.saturating_sub(1)).copied().unwrap_or_default() as f64 / 1e6
    };
    Latencies { reads: latencies.len(), tail_ms: [at(0.99), at(0.999), at(1.0)] }
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set").as_millis()
}

/// Ends fio so that it writes its logs.
fn stop(fio: &mut Child) {
    run(Command::new("kill").args(["-INT", &fio.id().to_string()]));
    fio.wait().expect("fio ends");
}
