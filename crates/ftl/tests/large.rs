//! A drive of a terabyte takes memory by what is touched. Alone in its file, so that no other test of the same
//! process allocates meanwhile.

use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Extent, Pages};
use trimtab_ftl::{ClosedLoop, Command, Device, Op};

const SIZE: Bytes = Bytes(1_000_204_886_016);
const PAGE: Bytes = Bytes(4096);

/// A line of the status of this process.
fn status(name: &str) -> Bytes {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    Bytes(kib << 10)
}

#[test]
fn drive_of_a_terabyte_takes_memory_by_what_is_touched() {
    let mut device = Device::new(&Profile::named("samsung-870-evo").unwrap(), SIZE).unwrap();
    device.precondition();
    assert_eq!(device.mapped(), SIZE);
    let mut host = ClosedLoop::new(32);
    let mut submit = |device: &mut Device, op, start, length| {
        host.submit(device, Command { op, extent: Extent::at(start, length) });
    };
    for number in 0..100_000u64 {
        // Four parts of 1 GiB, a quarter of the drive apart.
        let place = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (1 << 18);
        let start = Bytes(SIZE.0 / 4 / PAGE.0 * PAGE.0 * (number % 4)) + PAGE * place;
        let op = [Op::Write, Op::Write, Op::Read, Op::Discard][(number / 4 % 4) as usize];
        submit(&mut device, op, start, PAGE * (1 + number % 16));
    }
    let (half, mapped) = (Bytes(SIZE.0 / 2 / PAGE.0 * PAGE.0), device.mapped());
    submit(&mut device, Op::Discard, half, SIZE - half);
    assert!(device.mapped() < mapped && device.mapped() > Bytes(SIZE.0 / 100 * 49));
    assert!(device.is_mapped(Pages(half.0 / PAGE.0 - 1)) && !device.is_mapped(Pages(half.0 / PAGE.0)));
    let peak = status("VmHWM:");
    assert!(peak < Bytes(200 << 20), "{peak} of memory");
    assert!(device.bytes_per_page() < 0.25, "{} bytes a page", device.bytes_per_page());
}
