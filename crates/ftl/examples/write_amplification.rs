//! Shows how a discard of free space lowers a drive's write amplification.
//!
//! Fills two small models of the same drive, frees half of each, discards the free half of one, and
//! overwrites the other half at random. The drive that was not told of the free space copies stale pages.
//!
//! Run it: `cargo run --release --example write_amplification [PROFILE]`

use std::env;
use std::error::Error;
use std::process::ExitCode;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use trimtab_core::error::chain;
use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Extent};
use trimtab_ftl::{ClosedLoop, Command, Device, Op};

const SIZE: Bytes = Bytes(256 << 20);
/// The bytes of each random write.
const PIECE: Bytes = Bytes(16 << 10);
/// How often the half in use is overwritten.
const OVERWRITES: u64 = 4;

/// Returns the pages programmed for each page that the random overwrites wrote.
fn write_amplification(profile: &Profile, trims: bool) -> Result<f64, Box<dyn Error>> {
    let mut drive = Device::new(profile, SIZE)?;
    let mut host = ClosedLoop::new(profile.timing.queue_depth.value);
    let mut random = SmallRng::seed_from_u64(1);
    let half = Bytes(SIZE.get() / 2);

    for start in (0..SIZE.get()).step_by(Bytes::MIB.get() as usize) {
        let extent = Extent::at(Bytes(start), Bytes::MIB);
        host.submit(&mut drive, Command { op: Op::Write, extent });
    }
    if trims {
        host.submit(&mut drive, Command { op: Op::Discard, extent: Extent::new(half, SIZE) });
    }

    let filled = drive.ftl().totals();
    let pieces = half.get() / PIECE.get();
    for _ in 0..OVERWRITES * pieces {
        let extent = Extent::at(PIECE * random.random_range(0..pieces), PIECE);
        host.submit(&mut drive, Command { op: Op::Write, extent });
    }
    Ok(drive.ftl().totals().since(&filled).waf())
}

fn main() -> ExitCode {
    if let Err(error) = run() {
        eprintln!("{}", chain(&*error));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run() -> Result<(), Box<dyn Error>> {
    let name = env::args().nth(1).unwrap_or_else(|| "samsung-870-evo".to_owned());
    let profile = Profile::named(&name)?;
    println!("{SIZE} of {}, half of it in use and overwritten {OVERWRITES} times:", profile.model);
    println!("  without trims: write amplification {:.2}", write_amplification(&profile, false)?);
    println!("  with trims:    write amplification {:.2}", write_amplification(&profile, true)?);
    Ok(())
}
