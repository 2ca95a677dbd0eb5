//! Drives that tell the truth and drives that lie, each found out.

use trimtab_core::Bytes;
use trimtab_core::profile::DiscardedReads;

use super::*;
use crate::memory::{Behaviour, Failing, Memory, Returns, device};

const SIZE: Bytes = Bytes(96 << 20);
const BLOCKS: u64 = 40 * 2048;

fn verified(behaviour: Behaviour) -> Verify {
    let (device, range) = (device(&behaviour), Extent::new(Bytes::ZERO, behaviour.size));
    verify_on(&Memory::new(behaviour), &device, range).unwrap()
}

fn verify_on(target: &dyn Target, device: &BenchDevice, range: Extent) -> Result<Verify, BenchError> {
    let options = VerifyOptions::new(1, Duration::from_millis(20));
    verify(target, device, range, &options, &Interrupt::never(), &mut |_| {})
}

fn honest() -> Behaviour {
    Behaviour::honest(SIZE)
}

#[test]
fn an_honest_drive_reads_zeros_everywhere() {
    let verify = verified(Behaviour { grain: Bytes(24 << 10), alignment: Bytes(4096), ..honest() });
    assert_eq!((verify.areas, verify.area_size), (40, Bytes(43 * (24 << 10))));
    let blocks = 40 * verify.area_size.0 / 512;
    for (reading, when) in verify.readings.iter().zip(["at once", "again", "after a delay"]) {
        assert_eq!(reading.when, when);
        assert_eq!((reading.zero, reading.unchanged, reading.unstable), (blocks, 0, 0));
    }
    assert!(verify.readings[2].after_wall_s >= 0.02);
    assert_eq!((verify.lost_outside, &verify.ignored[..], verify.ignored_every), (0, &[][..], None));
    assert_eq!(verify.reads, Some(DiscardedReads::Zeros));
    assert_eq!(verify.granularity.honoured, Some(Bytes(24 << 10)));
    assert_eq!(verify.granularity.alignment, Bytes(4096));
}

#[test]
fn every_tenth_discard_ignored_is_found() {
    let verify = verified(Behaviour { ignored_every: Some(10), ..honest() });
    assert_eq!((verify.ignored.len(), verify.ignored_every), (4, Some(10)));
    assert_eq!(verify.readings[0].unchanged, 4 * 2048);
    assert_eq!(verify.reads, Some(DiscardedReads::Zeros));
}

#[test]
fn garbage_is_distinguished_from_data_of_other_addresses() {
    let garbage = verified(Behaviour { reads: DiscardedReads::Garbage, ..honest() });
    assert_eq!(garbage.reads, Some(DiscardedReads::Garbage));
    assert_eq!((garbage.readings[0].changed, garbage.readings[1].unstable), (BLOCKS, BLOCKS));
    let other = verified(Behaviour { reads: DiscardedReads::Other, ..honest() });
    assert_eq!(other.reads, Some(DiscardedReads::Other));
    assert_eq!(other.readings[0].misplaced, BLOCKS);
}

#[test]
fn old_data_is_distinguished_from_ignored_discards() {
    let old = Behaviour { reads: DiscardedReads::Old, grain: Bytes(4096), ..honest() };
    let verify = verified(old.clone());
    assert_eq!(verify.reads, Some(DiscardedReads::Old));
    assert_eq!(verify.granularity.honoured, Some(Bytes(4096)));
    assert_eq!((verify.readings[0].unchanged, &verify.ignored[..]), (BLOCKS, &[][..]));
    let verify = verified(Behaviour { least: SIZE, ..old });
    assert_eq!((verify.reads, verify.granularity.honoured), (None, None));
    assert!(verify.granularity.reason.unwrap().starts_with("no discard of up to 12 MiB changed"));
}

#[test]
fn old_data_that_comes_back_is_found() {
    for (returns, unstable) in
        [(Returns::AtSecondRead, [0, BLOCKS, 0]), (Returns::AfterDelay, [0, 0, BLOCKS])]
    {
        let verify = verified(Behaviour { returns, ..honest() });
        let found: Vec<_> = verify.readings.iter().map(|reading| reading.unstable).collect();
        assert_eq!(found, unstable);
        assert_eq!(verify.readings[2].unchanged, BLOCKS);
        assert_eq!(verify.reads, Some(DiscardedReads::Garbage));
        assert_eq!(verify.ignored, [0_u32; 0]);
    }
}

#[test]
fn writes_stay_inside_the_range() {
    const MIB: u64 = 1 << 20;
    for (advertised, range) in [(32 * MIB, 40..56), (1024 * MIB, 40..56), (64 * MIB, 40..41)] {
        let behaviour = Behaviour { grain: Bytes(32 * MIB), ..honest() };
        let device = BenchDevice { discard_granularity: Bytes(advertised), ..device(&behaviour) };
        let memory = Memory::new(behaviour);
        let range = Extent::new(Bytes(range.start * MIB), Bytes(range.end * MIB));
        memory.write(Bytes::ZERO, &vec![1; SIZE.0 as usize]).unwrap();
        verify_on(&memory, &device, range).unwrap();
        let mut after = vec![0; SIZE.0 as usize];
        memory.read(Bytes::ZERO, &mut after).unwrap();
        let outside = |at: &u64| *at < range.start.0 || *at >= range.end.0;
        assert!((0..SIZE.0).filter(outside).all(|at| after[at as usize] == 1), "{advertised} {range}");
    }
}

#[test]
fn data_lost_beside_a_discard_is_counted() {
    let verify = verified(Behaviour { rounds_outward: true, grain: Bytes(4096), ..honest() });
    assert!(verify.lost_outside > 0);
    assert_eq!(verify.granularity.honoured, None);
}

#[test]
fn an_error_names_the_command_and_its_bytes() {
    let device = device(&honest());
    let mut seen = Vec::new();
    for n in [1, 2, 3, 4, 60] {
        let target = Failing::at(n, Memory::new(honest()));
        let error = verify_on(&target, &device, Extent::new(Bytes::ZERO, SIZE)).unwrap_err();
        assert!(std::error::Error::source(&error).is_some());
        seen.push(error.to_string());
    }
    assert_eq!(seen[..3], ["cannot write 0..33792", "cannot flush the device", "cannot discard 8192..8704"]);
    assert!(seen[3].starts_with("cannot read "), "{}", seen[3]);
}

#[test]
fn interrupt_ends_the_verification() {
    let interrupt = Interrupt::default();
    interrupt.ask();
    let options = VerifyOptions::new(1, Duration::ZERO);
    let range = Extent::new(Bytes::ZERO, SIZE);
    let verified =
        verify(&Memory::new(honest()), &device(&honest()), range, &options, &interrupt, &mut |_| {});
    assert!(matches!(verified, Err(BenchError::Interrupted(_))));
}
