//! User Mode Linux: a kernel that is a program of this machine, with a clock that stands still while anything runs.
//!
//! Its processes are processes of this machine, whose system calls seccomp hands to the kernel. The kernel's work costs
//! a fixed virtual time ([`ProcessorCosts`]); what programs compute costs none. It needs neither root nor KVM.

mod recipe;
mod source;

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};

use trimtab_core::document::ProcessorCosts;
use trimtab_core::interrupt::Interrupt;

use super::console;
use super::error::{GuestError, at};
use super::machine::{CONSOLE, Machine, PORT};
use super::one_processor::OneProcessor;
use super::protocol::MessageKind;

pub(super) use recipe::{Built, Recipe};

/// The kernel's parameters:
/// - the clock skips idle time, and starts at the same time as in QEMU;
/// - system calls reach the kernel by seccomp, which is four times as fast as ptrace;
/// - messages of the first process go to the file that is standard input, those of the kernel to standard output: files
///   take everything at once, so that the guest never waits for the host;
/// - a panic ends the guest, also when memory is used up.
const PARAMETERS: [&str; 19] = [
    "time-travel=inf-cpu",
    "time-travel-start=1767225600000000000",
    "seccomp=on",
    "uml_dir=.",
    "umid=uml",
    "con=null",
    "con0=null,fd:1",
    "ssl=null",
    "ssl1=null,fd:0",
    "console=tty0",
    "quiet",
    "panic=-1",
    "oops=panic",
    "noreboot",
    "norandmaps",
    "random.trust_cpu=off",
    "random.trust_bootloader=off",
    "noautogroup",
    "rdinit=/init",
];

/// The part of a guest's limit that a process may compute without a system call.
const SPIN_PART: u32 = 20;

/// Boots the machine and passes every message from it to `receive`, until it turns itself off.
///
/// # Errors
/// [`GuestError`]; the machine has ended by then.
pub(super) fn run(
    machine: &Machine,
    processor: ProcessorCosts,
    interrupt: &Interrupt,
    receive: &mut dyn FnMut(MessageKind, Vec<u8>),
) -> Result<(), GuestError> {
    let file = |name: &str| {
        let path = machine.room.join(name);
        OpenOptions::new().create(true).append(true).open(&path).map_err(at(&path, "make"))
    };
    let console = file(CONSOLE)?;
    let ProcessorCosts { syscall, fault, request, switch, data, copy, cache } = processor;
    let mut command = Command::new(machine.kernel);
    command.args(PARAMETERS).arg(format!("initrd={}", machine.initramfs.display()));
    command.arg(format!("mem={}M", machine.memory.0.div_ceil(1 << 20)));
    command.arg(format!("processor={syscall},{fault},{request},{switch},{data},{copy},{cache}"));
    command.arg(format!("processor-spin={}", (machine.limit / SPIN_PART).as_secs().max(1)));
    // The kernel passes what it does not know on to the first process, and reads variables of its own.
    command.env_clear().env("HOME", "/");
    command.stdin(file(PORT)?).stderr(console.try_clone().map_err(at(Path::new(CONSOLE), "open"))?);
    command.stdout(Stdio::from(console));
    let mut kept = None;
    let ended =
        machine.follow(&mut command, &mut |child| kept = OneProcessor::keep(child), interrupt, receive);
    drop(kept);
    match ended? {
        None => Ok(()),
        Some(_) => Err(console::diagnose(&machine.console(), machine.memory)),
    }
}
