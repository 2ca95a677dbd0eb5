//! Queues on a real loop device: what they say has ended has happened, and nothing else has.

mod common;

use std::collections::HashMap;
use std::time::Duration;

use common::{Loop, possible};
use trimtab_core::erase::Operation;
use trimtab_core::{Bytes, Extent};
use trimtab_linux::claim::{self, Overrides};
use trimtab_linux::device::Device;
use trimtab_linux::queue::{Command, CommandKind, Queue};

/// A loop device over a file may be claimed.
const FILE: Overrides = Overrides { signatures: false, partitions: false, part: true };

const SIZE: Bytes = Bytes(8 << 20);
/// The size of the area that commands of the stress name.
const AREA: u64 = 32 << 10;

fn claimed(scratch: &Loop) -> Device {
    claim::claim(&scratch.device, &FILE).unwrap().device
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// A sequence of numbers that looks random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn commands_read_write_and_discard() {
    if !possible() {
        return;
    }
    for depth in [1, 8, 32] {
        let scratch = Loop::new(SIZE);
        let device = claimed(&scratch);
        let mut queue = Queue::new(&device, depth).unwrap();
        let areas = SIZE.0 / AREA;
        let mut filled: HashMap<u64, bool> = HashMap::new();
        let mut in_flight: HashMap<u64, Command> = HashMap::new();
        let mut state = u64::from(depth);
        for tag in 0..4000 {
            // No two commands in flight touch the same area.
            let area = loop {
                let area = next(&mut state) % areas;
                if in_flight.values().all(|command| command.extent.start.0 / AREA != area) {
                    break area;
                }
            };
            let kind = match next(&mut state) % 6 {
                0 | 1 => CommandKind::Write,
                2 | 3 => CommandKind::Read,
                4 => CommandKind::Erase(Operation::Discard),
                _ => CommandKind::Erase(Operation::Zeroout),
            };
            let command = Command { kind, extent: Extent::at(Bytes(area * AREA), Bytes(AREA)) };
            queue.submit(tag, command).unwrap();
            in_flight.insert(tag, command);
            while queue.in_flight() == depth || (tag == 3999 && queue.in_flight() > 0) {
                let completion = queue.wait(None).unwrap().unwrap();
                completion.result.unwrap();
                assert!(completion.latency > Duration::ZERO);
                let Command { kind, extent } = in_flight.remove(&completion.tag).expect("each ends once");
                match kind {
                    CommandKind::Read => {}
                    CommandKind::Write => drop(filled.insert(extent.start.0, true)),
                    CommandKind::Erase(_) => drop(filled.insert(extent.start.0, false)),
                }
            }
        }
        assert!(in_flight.is_empty() && queue.wait(None).unwrap().is_none());
        let mut written = None;
        for (start, filled) in filled {
            let mut found = vec![0; AREA as usize];
            device.read(Bytes(start), &mut found).unwrap();
            assert_ne!(is_zero(&found), filled, "depth {depth}, area at {start}");
            if filled {
                assert_eq!(*written.get_or_insert(found.clone()), found, "all writes write the same");
            }
        }
    }
}
