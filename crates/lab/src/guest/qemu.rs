//! The emulated machine.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use trimtab_core::Bytes;
use trimtab_linux::child::die_with_parent;

use super::console;
use super::error::{GuestError, QEMU, at};
use super::programs;
use super::protocol::{MessageKind, Receiver};
use trimtab_core::interrupt::Interrupt;

/// How often messages, an interrupt and the limit are looked for.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// How long a guest has to turn itself off after its results arrived.
const GRACE: Duration = Duration::from_secs(10);

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
/// - no workarounds for faults of processors that this one doesn't have;
/// - a panic ends the guest, also when memory is used up.
const PARAMETERS: &str = "console=ttyS0 quiet panic=-1 oops=panic norandmaps nokaslr random.trust_cpu=off \
    random.trust_bootloader=off tsc=reliable tsc_early_khz=1000000 nolapic_timer nowatchdog mitigations=off \
    audit=0 noautogroup rdinit=/init";

/// Memory that a kernel needs before it runs anything, besides twice the initramfs.
const KERNEL_MEMORY: Bytes = Bytes(160 << 20);

/// Checks that there is a QEMU.
///
/// # Errors
/// [`GuestError::NoQemu`].
pub(super) fn check() -> Result<(), GuestError> {
    programs::find(QEMU).map(drop).ok_or(GuestError::NoQemu)
}

/// A machine to boot once.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    pub(super) memory: Bytes,
    /// An empty directory for the machine's own files.
    pub(super) room: &'a Path,
    /// The most wall time that it may take.
    pub(super) limit: Duration,
}

impl Machine<'_> {
    /// Boots the machine and passes every message from it to `receive`, until it turns itself off.
    ///
    /// # Errors
    /// [`GuestError`]; the machine has ended by then.
    pub(super) fn run(
        &self,
        interrupt: &Interrupt,
        receive: &mut dyn FnMut(MessageKind, Vec<u8>),
    ) -> Result<(), GuestError> {
        self.check_memory()?;
        let said = self.room.join("qemu");
        let stderr = File::create(&said).map_err(at(&said, "make"))?;
        let mut command = Command::new(QEMU);
        command.args(MACHINE).arg(self.kernel).arg("-initrd").arg(self.initramfs);
        command.args(["-append", PARAMETERS, "-m", &format!("{}M", self.memory.0.div_ceil(1 << 20))]);
        command.current_dir(self.room).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        // Ctrl-C is for this program, which then ends the machine.
        command.process_group(0);
        die_with_parent(&mut command);
        let mut running = Running(command.spawn().map_err(at(Path::new(QEMU), "run"))?);
        let ended = self.follow(&running.0, interrupt, receive)?;
        if !ended {
            return Ok(());
        }
        let status = running.0.wait().map_err(at(Path::new(QEMU), "wait for"))?;
        let console = self.console();
        if !status.success() {
            let said = fs::read(&said).unwrap_or_default();
            let said = console::tail(&said).lines().next_back().unwrap_or("no message").to_owned();
            return Err(GuestError::Qemu { status, said });
        }
        Err(console::diagnose(&console, self.memory))
    }

    /// Refuses what couldn't even start the first process, of which no kernel says anything clear.
    fn check_memory(&self) -> Result<(), GuestError> {
        let size = fs::metadata(self.initramfs).map_err(at(self.initramfs, "read"))?.len();
        if self.memory < Bytes(2 * size + KERNEL_MEMORY.0) {
            return Err(GuestError::OutOfMemory { memory: self.memory });
        }
        Ok(())
    }

    /// Follows the machine until its results have arrived and it is off, which gives false, or until it is
    /// off without them, which gives true.
    fn follow(
        &self,
        child: &Child,
        interrupt: &Interrupt,
        receive: &mut dyn FnMut(MessageKind, Vec<u8>),
    ) -> Result<bool, GuestError> {
        let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())
            .map_err(|errno| at(Path::new(QEMU), "wait for")(errno.into()))?;
        let mut port = Port { path: &self.room.join("port"), at: 0, receiver: Receiver::default() };
        let started = Instant::now();
        let mut finished: Option<Instant> = None;
        loop {
            let off = match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&POLL_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => false,
                Ok(_) => true,
                Err(errno) => return Err(at(Path::new(QEMU), "wait for")(errno.into())),
            };
            interrupt.check()?;
            port.read()?;
            while let Some((kind, payload)) = port.receiver.next()? {
                if matches!(kind, MessageKind::End(_) | MessageKind::Missing | MessageKind::Failed) {
                    finished = Some(Instant::now());
                }
                receive(kind, payload);
            }
            match finished {
                Some(since) if off || since.elapsed() > GRACE => return Ok(false),
                None if off => return Ok(true),
                None if started.elapsed() > self.limit => {
                    let console = console::tail(&self.console());
                    return Err(GuestError::Hung { limit: self.limit, console });
                }
                _ => {}
            }
        }
    }

    fn console(&self) -> Vec<u8> {
        fs::read(self.room.join("console")).unwrap_or_default()
    }
}

/// The file behind the serial port.
struct Port<'a> {
    path: &'a Path,
    at: u64,
    receiver: Receiver,
}

impl Port<'_> {
    /// Takes what has been written since the last time.
    fn read(&mut self) -> Result<(), GuestError> {
        let Ok(mut file) = File::open(self.path) else { return Ok(()) };
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.at))
            .and_then(|_| file.read_to_end(&mut bytes))
            .map_err(at(self.path, "read"))?;
        self.at += bytes.len() as u64;
        self.receiver.feed(&bytes);
        Ok(())
    }
}

/// A QEMU that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
