//! The drive that `trimtab compare` emulates by default, beside its data sheet.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Extent};
use trimtab_ftl::{ClosedLoop, Command, Device, Op};

/// As large as `trimtab compare` makes it.
const SIZE: Bytes = Bytes(512 << 20);
const PAGE: u64 = 4096;
const LARGE: u64 = 128 << 10;

/// How many of these commands of `length` bytes are done in a second at this queue depth. The first
/// completion starts the clock, so that work the drive had left over does not count.
fn a_second(device: &mut Device, depth: u32, op: Op, length: u64, starts: &[u64]) -> f64 {
    let mut host = ClosedLoop::new(depth);
    let mut submit = |start: &u64| {
        host.submit(device, Command { op, extent: Extent::at(Bytes(*start), Bytes(length)) }).done
    };
    let (first, rest) = starts.split_first().unwrap();
    let begun = submit(first);
    let done = rest.iter().map(submit).max().unwrap();
    rest.len() as f64 / (done - begun).seconds()
}

#[test]
fn samsung_870_evo_meets_its_data_sheet() {
    let mut device = Device::new(&Profile::named("samsung-870-evo").unwrap(), SIZE).unwrap();
    let in_order: Vec<_> = (0..SIZE.0).step_by(LARGE as usize).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let at_random: Vec<_> = (0..20_000).map(|_| rng.random_range(0..SIZE.0 / PAGE) * PAGE).collect();
    let megabytes = LARGE as f64 / 1e6;
    let figures = [
        ("MB/s written in order", 530.0, megabytes * a_second(&mut device, 32, Op::Write, LARGE, &in_order)),
        ("MB/s read in order", 560.0, megabytes * a_second(&mut device, 32, Op::Read, LARGE, &in_order)),
        ("random reads/s, depth 1", 13_000.0, a_second(&mut device, 1, Op::Read, PAGE, &at_random)),
        ("random reads/s, depth 32", 98_000.0, a_second(&mut device, 32, Op::Read, PAGE, &at_random)),
    ];
    for (what, stated, modelled) in figures {
        assert!((modelled / stated - 1.0).abs() <= 0.03, "{modelled} {what}; the data sheet says {stated}");
    }
}
