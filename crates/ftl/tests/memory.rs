//! Memory doesn't grow with the number of requests. Alone in its file, so that no other test of the
//! same process allocates meanwhile.

use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Extent};
use trimtab_ftl::{ClosedLoop, Command, Device, Op};

fn resident() -> Bytes {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    Bytes(kib << 10)
}

#[test]
fn a_million_requests_take_no_more_memory_than_a_few() {
    const SIZE: u64 = 1 << 30;
    let mut device = Device::new(&Profile::named("ocz-agility-3").unwrap(), Bytes(SIZE)).unwrap();
    let mut host = ClosedLoop::new(32);
    let mut run = |count: u64| {
        for number in 0..count {
            let op =
                [Op::Write, Op::Write, Op::Write, Op::Read, Op::Discard, Op::Flush][(number % 6) as usize];
            let start = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (SIZE / 4096 - 16) * 4096;
            host.submit(&mut device, Command { op, extent: Extent::at(Bytes(start), Bytes(65_536)) });
        }
    };
    run(50_000);
    let before = resident();
    run(1_000_000);
    let grown = resident().saturating_sub(before);
    assert!(grown < Bytes(2 << 20), "{grown} more");
}
