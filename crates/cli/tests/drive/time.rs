//! Model time doesn't depend on this machine; real time does what the model says.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use trimtab_core::profile::DiscardedReads;
use trimtab_core::stats::DriveCounters;
use trimtab_core::{Bytes, Nanos};
use trimtab_drive::{Clock, Drive};

use crate::support::{Aligned, Numbers, discard, drive, open_direct, options, possible, profile, read_at};

const SIZE: Bytes = Bytes(64 << 20);
const SPACE: u64 = 48 << 20;

/// The expected time, less a way to the drive that was slower when it was measured.
fn nearly(due: Duration) -> Duration {
    due.mul_f64(0.9)
}

/// Writes, reads and discards one after another; returns what the drive counted.
fn work(drive: &Drive) -> DriveCounters {
    let device = open_direct(drive.device());
    let mut numbers = Numbers(3);
    for _ in 0..16_000 {
        let at = numbers.below(SPACE / 4096) * 4096;
        match numbers.below(8) {
            0 => discard(&device, at, 64 << 10),
            1 => drop(read_at(&device, at, 4096)),
            2 => device.sync_data().unwrap(),
            _ => device.write_all_at(Aligned::filled(16 << 10, 1).bytes(), at).unwrap(),
        }
    }
    drive.stats().unwrap().counters
}

#[test]
fn model_time_is_the_same_at_every_run() {
    if !possible() {
        return;
    }
    let [first, second] = [(), ()].map(|()| work(&drive(profile(DiscardedReads::Zeros), SIZE)));
    assert!(first.model_ns > Nanos::ZERO && first.erases > 0);
    assert_eq!(first, second);
}

/// How long `discards` discards of 10 ms each take on the wall clock.
fn time_discards(speed: f64, discards: u64) -> Duration {
    let mut profile = profile(DiscardedReads::Zeros);
    profile.discard.command.value = Nanos(10_000_000);
    let mut options = options(profile, SIZE);
    options.clock = Clock::Real { speed };
    let drive = Drive::create(&options).unwrap();
    let device = open_direct(drive.device());
    let start = Instant::now();
    (0..discards).for_each(|n| discard(&device, n << 20, 64 << 10));
    start.elapsed()
}

#[test]
fn real_time_equals_the_models_time() {
    if !possible() {
        return;
    }
    const DISCARDS: u64 = 20;
    let due = Duration::from_millis(10) * DISCARDS as u32;
    let took = time_discards(1.0, DISCARDS);
    assert!(took >= nearly(due), "{took:?}, but {due:?} were due");
    let took = time_discards(20.0, DISCARDS);
    assert!(took >= nearly(due / 20) && took < due, "{took:?}, but {:?} were due", due / 20);
}

#[test]
fn delayed_reply_does_not_delay_others() {
    if !possible() {
        return;
    }
    const SLOW: Duration = Duration::from_millis(600);
    let mut profile = profile(DiscardedReads::Zeros);
    profile.timing.read.value = Nanos(SLOW.as_nanos() as u64);
    let mut options = options(profile, SIZE);
    options.clock = Clock::Real { speed: 1.0 };
    let drive = Drive::create(&options).unwrap();
    let device = open_direct(drive.device());
    // More than the write buffer holds, so that the first page is in the flash.
    (0..8).for_each(|n| device.write_all_at(Aligned::filled(1 << 20, 1).bytes(), n << 20).unwrap());
    let time_read = |at| {
        let start = Instant::now();
        read_at(&device, at, 4096);
        start.elapsed()
    };
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| time_read(0));
        std::thread::sleep(SLOW / 6);
        let never_written = time_read(SIZE.0 - 4096);
        assert!(never_written < SLOW / 2, "{never_written:?}");
        assert!(slow.join().unwrap() >= nearly(SLOW));
    });
}
