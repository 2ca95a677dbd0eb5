//! The data that a drive holds, and its counts.

use std::os::unix::fs::FileExt;
use std::path::Path;

use trimtab_core::profile::{DiscardedReads, Profile, Sourced};
use trimtab_core::{Bytes, Extent};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::{SYSFS, ioctl};

use crate::support::{Aligned, Numbers, discard, drive, open_direct, options, possible, profile, read_at};
use trimtab_drive::{Drive, DriveError, Room};

const SECTOR: u64 = 512;
const GRAIN: u64 = 4096;
const SPACE: u64 = 16 << 20;
const SIZE: Bytes = Bytes(64 << 20);

/// Writes and discards at random, on a drive and on a naive map of it, and compares all data.
fn follows_a_naive_map(drive: &Drive) {
    let device = open_direct(drive.device());
    let mut map = vec![0_u8; SPACE as usize];
    let mut numbers = Numbers(1);
    for step in 0..3_000_u64 {
        let start = numbers.below(SPACE / SECTOR) * SECTOR;
        let length = ((numbers.below(64) + 1) * SECTOR).min(SPACE - start);
        if numbers.below(3) > 0 {
            let data = Aligned::filled(length as usize, step as u8 | 1);
            device.write_all_at(data.bytes(), start).unwrap();
            map[start as usize..(start + length) as usize].fill(step as u8 | 1);
        } else {
            discard(&device, start, length);
            let (from, to) = (start.next_multiple_of(GRAIN), (start + length) / GRAIN * GRAIN);
            if from < to {
                map[from as usize..to as usize].fill(0);
            }
        }
    }
    let data = read_at(&device, 0, SPACE as usize);
    let wrong = (0..SPACE as usize).find(|at| data[*at] != map[*at]);
    assert_eq!(wrong, None, "the first wrong byte");
}

#[test]
fn sparse_drive_is_larger_than_memory() {
    if !possible() {
        return;
    }
    let profile = Profile::named("samsung-870-evo").unwrap();
    let size = Bytes(4 << 40);
    let mut options = options(profile, size);
    options.preconditioned = true;
    assert!(matches!(Drive::create(&options), Err(DriveError::NoRoom { .. })));
    options.room = Room::Sparse;
    let drive = Drive::create(&options).unwrap();
    let device = open_direct(drive.device());
    let places = [0, 1 << 40, size.0 - Bytes::MIB.0];
    for (number, place) in (1..).zip(places) {
        device.write_all_at(Aligned::filled(1 << 20, number).bytes(), place).unwrap();
    }
    for (number, place) in (1..).zip(places) {
        assert_eq!(read_at(&device, place, 1 << 20), [number; 1 << 20]);
    }
    let stats = drive.stats().unwrap();
    assert_eq!((stats.mapped, stats.data_held), (size, Bytes(3 << 20)));
    discard(&device, 0, Bytes::GIB.0);
    let stats = drive.stats().unwrap();
    assert_eq!((stats.mapped, stats.data_held), (size - Bytes::GIB, Bytes(2 << 20)));
    // The room of all of it is given back at once, though there are a million steps of it.
    (0..size.0).step_by(1 << 31).for_each(|start| discard(&device, start, 1 << 31));
    let stats = drive.stats().unwrap();
    assert_eq!((stats.mapped, stats.data_held), (Bytes::ZERO, Bytes::ZERO));
}

#[test]
fn data_matches_a_naive_map_in_memory_and_in_a_file() {
    if !possible() {
        return;
    }
    let memory = drive(profile(DiscardedReads::Zeros), SIZE);
    follows_a_naive_map(&memory);
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(profile(DiscardedReads::Zeros), SIZE);
    options.data = Some(directory.path().join("data"));
    let file = Drive::create(&options).unwrap();
    follows_a_naive_map(&file);
    for drive in [memory, file] {
        let held = drive.stats().unwrap().data_held;
        assert!(held > Bytes::ZERO && held <= Bytes(SPACE), "{held} held");
        discard(&open_direct(drive.device()), 0, SIZE.0);
        assert_eq!(drive.stats().unwrap().data_held, Bytes::ZERO);
        drive.remove().unwrap();
    }
    assert!(!directory.path().join("data").exists());
}

#[test]
fn discarded_ranges_read_as_the_profile_says() {
    if !possible() {
        return;
    }
    let read_twice = |reads| {
        let drive = drive(profile(reads), SIZE);
        let device = open_direct(drive.device());
        for grain in 0..4 {
            device
                .write_all_at(Aligned::filled(GRAIN as usize, grain as u8 + 1).bytes(), grain * GRAIN)
                .unwrap();
        }
        // The first grain is named but for its first sector, and so not honoured.
        discard(&device, SECTOR, 3 * GRAIN - SECTOR);
        [(), ()].map(|()| read_at(&device, 0, 4 * GRAIN as usize))
    };
    let discarded = GRAIN as usize..3 * GRAIN as usize;
    for reads in [DiscardedReads::Zeros, DiscardedReads::Old, DiscardedReads::Garbage, DiscardedReads::Other]
    {
        let [first, second] = read_twice(reads);
        for data in [&first, &second] {
            assert!(data[..discarded.start].iter().all(|byte| *byte == 1), "{reads:?}");
            assert!(data[discarded.end..].iter().all(|byte| *byte == 4), "{reads:?}");
        }
        let (first, second) = (&first[discarded.clone()], &second[discarded.clone()]);
        match reads {
            DiscardedReads::Zeros => assert!(first.iter().all(|byte| *byte == 0)),
            DiscardedReads::Old => {
                let (one, two) = first.split_at(GRAIN as usize);
                assert!(one.iter().all(|byte| *byte == 2) && two.iter().all(|byte| *byte == 3));
            }
            DiscardedReads::Garbage => {
                let same = first.iter().zip(second).filter(|(a, b)| a == b).count();
                assert!(same < first.len() / 64, "{same} bytes of {} read the same twice", first.len());
            }
            DiscardedReads::Other => assert!(first.iter().all(|byte| matches!(byte, 1 | 4))),
        }
    }
}

#[test]
fn an_ignored_discard_leaves_the_data_and_counts() {
    if !possible() {
        return;
    }
    let mut profile = profile(DiscardedReads::Zeros);
    profile.discard.ignored_every = Some(Sourced { value: 2, source: "a test".to_owned() });
    let drive = drive(profile, SIZE);
    let device = open_direct(drive.device());
    device.write_all_at(Aligned::filled(4 * GRAIN as usize, 7).bytes(), 0).unwrap();
    (0..4).for_each(|grain| discard(&device, grain * GRAIN, GRAIN));
    let data = read_at(&device, 0, 4 * GRAIN as usize);
    let expected = [0, 7, 0, 7].into_iter().flat_map(|byte| [byte; GRAIN as usize]);
    assert!(data.into_iter().eq(expected));
    assert_eq!(drive.stats().unwrap().counters.discards, 4);
}

#[test]
fn commands_are_counted_as_the_kernel_counts_them() {
    if !possible() {
        return;
    }
    let mut profile = profile(DiscardedReads::Zeros);
    profile.discard.command_limit.value = Bytes::MIB;
    let drive = drive(profile, SIZE);
    assert_eq!(drive.stats().unwrap().limits.discard_max, Bytes::MIB);
    let block = BlockDevice::open(Path::new(SYSFS), drive.device()).unwrap();
    let (kernel, counters) = (block.counters().unwrap(), drive.stats().unwrap().counters);
    let device = open_direct(drive.device());
    let mut numbers = Numbers(2);
    for _ in 0..500 {
        let start = numbers.below(SPACE / SECTOR) * SECTOR;
        device.write_all_at(Aligned::filled(8192, 1).bytes(), start).unwrap();
        discard(&device, start, (numbers.below(6_000) + 1) * SECTOR);
    }
    let kernel = block.counters().unwrap().since(&kernel);
    let counters = drive.stats().unwrap().counters.since(&counters);
    assert!(counters.discards > 500, "{} discards: some were longer than a command", counters.discards);
    assert_eq!((counters.discards, counters.discard_bytes), (kernel.discards, kernel.discard_bytes));
    assert_eq!((counters.writes, counters.write_bytes), (kernel.writes, kernel.write_bytes));
}

#[test]
fn zeros_written_by_the_kernel_count_as_writes_and_read_as_zeros() {
    if !possible() {
        return;
    }
    for reads in [DiscardedReads::Old, DiscardedReads::Garbage, DiscardedReads::Other] {
        let drive = drive(profile(reads), SIZE);
        let device = open_direct(drive.device());
        device.write_all_at(Aligned::filled(1 << 20, 7).bytes(), 0).unwrap();
        // What would reach the loop driver as a punched hole is not to be had.
        let block = BlockDevice::open(Path::new(SYSFS), drive.device()).unwrap();
        assert_eq!(block.discard_limits().unwrap().write_zeroes_max, Bytes::ZERO);
        ioctl::zero_out(&device, Extent::at(Bytes::ZERO, Bytes(524_288))).unwrap();
        assert_eq!(drive.stats().unwrap().counters.discards, 0);
        assert!(read_at(&device, 0, 524_288).iter().all(|byte| *byte == 0), "{reads:?}");
        assert!(read_at(&device, 524_288, 524_288).iter().all(|byte| *byte == 7), "{reads:?}");
    }
}
