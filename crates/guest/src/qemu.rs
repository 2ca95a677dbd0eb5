//! The emulated machine.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use trimtab_core::Bytes;
use trimtab_core::interrupt::Interrupt;

use super::console;
use super::error::{GuestError, QEMU, at};
use super::machine::Machine;
use super::programs;
use super::protocol::MessageKind;

/// Options that make the guest reproducible and cheap:
/// - `-icount shift=0,sleep=off`: the clock advances by 1 ns for an instruction and skips idle time;
/// - `rr=record`: QEMU's threads take turns, so that a timer interrupts at the same instruction in each run
///   (without it, 1 run in 15 was interrupted elsewhere on a busy machine); nobody replays the record;
/// - Nehalem has the CRC32C instruction, but no random numbers (RDRAND), and no fast `rep movsb` (ERMS),
///   which counts as an instruction for every byte here (a write through a drive took twice as long);
/// - without CMPXCHG16B (CX16): before version 8, QEMU computes the flags that it leaves wrongly if the
///   clock interrupts twice around it, and one boot in 30 ended in a panic;
/// - the real-time clock starts at a fixed time and follows the guest's;
/// - serial ports write to files, which take everything at once: a pipe that is full would delay the guest
///   until the host has read it.
const MACHINE: [&str; 24] = [
    "-accel",
    "tcg",
    "-icount",
    "shift=0,sleep=off,rr=record,rrfile=/dev/null",
    "-machine",
    "q35",
    "-cpu",
    "Nehalem-v1,-cx16",
    "-smp",
    "1",
    "-nodefaults",
    "-no-user-config",
    "-no-reboot",
    "-display",
    "none",
    "-seed",
    "1",
    "-rtc",
    "base=2026-01-01T00:00:00,clock=vm",
    "-serial",
    "file:console",
    "-serial",
    "file:port",
    "-kernel",
];

/// The kernel's parameters:
/// - no randomised addresses, and no entropy from the host;
/// - the clock's rate is given and trusted: nothing calibrates it, and no watchdog wakes an idle guest;
/// - the timer is the HPET: calibrating the other one (the local APIC's) takes seconds here;
/// - no figures of pressure (PSI), which wake an idle guest every two seconds, and then its statistics of memory;
/// - no workarounds for faults of processors that this one doesn't have;
/// - a panic ends the guest, also when memory is used up.
const PARAMETERS: &str = "console=ttyS0 quiet panic=-1 oops=panic norandmaps nokaslr random.trust_cpu=off \
    random.trust_bootloader=off tsc=reliable tsc_early_khz=1000000 nolapic_timer nowatchdog mitigations=off \
    audit=0 noautogroup psi=0 rdinit=/init";

/// Memory that a kernel needs before it runs anything, besides twice the initramfs.
const KERNEL_MEMORY: Bytes = Bytes(160 << 20);

/// Checks that there is a QEMU.
///
/// # Errors
/// [`GuestError::NoQemu`].
pub(super) fn check() -> Result<(), GuestError> {
    programs::find(QEMU).map(drop).ok_or(GuestError::NoQemu)
}

/// Boots the machine and passes every message from it to `receive`, until it turns itself off.
///
/// # Errors
/// [`GuestError`]; the machine has ended by then.
pub(super) fn run(
    machine: &Machine,
    interrupt: &Interrupt,
    receive: &mut dyn FnMut(MessageKind, Vec<u8>),
) -> Result<(), GuestError> {
    check_memory(machine)?;
    let said = machine.room.join("qemu");
    let stderr = File::create(&said).map_err(at(&said, "make"))?;
    let mut command = Command::new(QEMU);
    command.args(MACHINE).arg(machine.kernel).arg("-initrd").arg(machine.initramfs);
    command.args(["-append", PARAMETERS, "-m", &format!("{}M", machine.memory.0.div_ceil(1 << 20))]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let Some(status) = machine.follow(&mut command, &mut |_| {}, interrupt, receive)? else { return Ok(()) };
    if !status.success() {
        let said = fs::read(&said).unwrap_or_default();
        let said = console::tail(&said).lines().next_back().unwrap_or("no message").to_owned();
        return Err(GuestError::Qemu { status, said });
    }
    Err(console::diagnose(&machine.console(), machine.memory))
}

/// Refuses memory that is too small to start the first process: no kernel says that clearly.
fn check_memory(machine: &Machine) -> Result<(), GuestError> {
    let size = fs::metadata(machine.initramfs).map_err(at(machine.initramfs, "read"))?.len();
    if machine.memory < Bytes(2 * size + KERNEL_MEMORY.0) {
        return Err(GuestError::OutOfMemory { memory: machine.memory });
    }
    Ok(())
}
