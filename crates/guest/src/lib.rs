//! A guest whose clock counts instructions: virtual time.
//!
//! [`GuestImage::prepare`] packs a kernel and an initramfs with this very program, others that it names, and their
//! libraries. [`GuestImage::run`] boots it in QEMU, which emulates the processor (TCG)
//! and advances the clock by a nanosecond for every instruction, or to the next timer if nothing runs.
//! The program runs there as the first process ([`run_as_init`]), has the command run, and sends the
//! results over a serial port. It needs neither root nor KVM, and results don't depend on how busy this
//! machine is.
//!
//! All that the guest uses is in its memory. A wait for the host, be it for a disk, a network or a shared
//! directory, would let the guest's clock jump to its next timer: times would depend on the host.

mod archive;
mod binary;
mod bzimage;
mod console;
mod debian;
mod decompress;
mod error;
#[cfg(test)]
mod executable;
mod image;
mod init;
mod kernel;
mod kernel_choice;
mod machine;
mod modules;
mod one_processor;
pub mod program;
mod programs;
mod protocol;
mod qemu;
mod uml;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::Engine;

use trimtab_core::error::chain;
use trimtab_core::interrupt::Interrupt;

pub use error::GuestError;
pub use init::{is_init, run_as_init};
pub use kernel_choice::{KernelChoice, UnknownKernel};
use {error::at, image::Contents, machine::Machine, protocol::MessageKind};

/// Where the guest finds the program that was packed.
pub const PROGRAM: &str = "/bin/trimtab";
/// The memory of a guest that only boots.
const TRIAL_MEMORY: Bytes = Bytes(512 << 20);
/// The wall time after which a guest that does nothing counts as hung.
const TRIAL_LIMIT: Duration = Duration::from_secs(60);
/// The file with the command, which the first process reads.
const COMMAND: &str = "/trimtab-command.json";

/// The contents of a guest's image.
#[derive(Debug, Clone)]
pub struct GuestOptions {
    /// The program that runs the guest.
    pub engine: Engine,
    /// The kernel, if QEMU runs the guest. User Mode Linux is a kernel of its own.
    pub kernel: KernelChoice,
    /// This program's executable, which is the guest's first process and [`PROGRAM`].
    pub program: PathBuf,
    /// Modules of the kernel, such as a file system, that are loaded in every run: what a run does not need may change its
    /// results.
    pub modules: Vec<String>,
    /// Programs of this machine, by name, that the guest has in `/bin`.
    pub programs: Vec<String>,
    /// Whether a shell and the usual programs of this machine are packed too.
    pub tools: bool,
    /// Files and directories of this machine that the guest has under the same absolute paths: programs with
    /// the libraries that they need.
    pub files: Vec<PathBuf>,
    /// Files and directories that are only read there.
    pub data: Vec<PathBuf>,
    /// Files and directories that are only read there, with their paths in the guest: a run then does not
    /// depend on where this machine has them.
    pub placed: Vec<(PathBuf, PathBuf)>,
}

/// Whether the kernel of User Mode Linux was built before.
pub fn uml_is_built() -> bool {
    uml::Recipe::new().is_built()
}

/// An error of building or running User Mode Linux, as the reason why it does not run here.
fn no_uml(error: GuestError) -> GuestError {
    match error {
        GuestError::Interrupted(_) | GuestError::NoUml { .. } => error,
        error => GuestError::NoUml { reason: chain(&error) },
    }
}

/// A command for a guest.
#[derive(Debug, Clone)]
pub struct GuestCommand {
    /// The program, a path or a name in `/bin`, and its arguments.
    pub arguments: Vec<String>,
    /// The files to bring back when it has ended.
    pub files_back: Vec<PathBuf>,
    /// The guest's memory, for everything: the system, all files, and the data of emulated drives.
    pub memory: Bytes,
    /// The wall time after which the guest counts as hung.
    pub limit: Duration,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestStatus {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// The results of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestOutput {
    /// How it ended.
    pub status: GuestStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error, which was also passed on line by line.
    pub stderr: Vec<u8>,
    /// The files that were asked for, in that order; `None` for one that isn't there.
    pub files: Vec<Option<Vec<u8>>>,
}

/// The command as the first process reads it.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    arguments: Vec<String>,
    files_back: Vec<PathBuf>,
}

/// A kernel and an initramfs, ready to be booted any number of times, also at the same time.
#[derive(Debug)]
pub struct GuestImage {
    /// Holds the files below.
    dir: TempDir,
    engine: Engine,
    kernel: PathBuf,
    initramfs: PathBuf,
    release: String,
    contents: Contents,
}

impl GuestImage {
    /// Finds or fetches the kernel and packs the image.
    ///
    /// # Errors
    /// [`GuestError`] names what is missing on this machine and what to do.
    pub fn prepare(options: &GuestOptions, interrupt: &Interrupt) -> Result<Self, GuestError> {
        let engine = options.engine;
        if engine == Engine::Qemu {
            qemu::check()?;
        }
        let dir =
            TempDir::with_prefix("trimtab-guest-").map_err(at(&std::env::temp_dir(), "make a file in"))?;
        let initramfs = dir.path().join("initramfs");
        let (kernel, release, contents) = match engine {
            Engine::Qemu => {
                let found = options.kernel.find(interrupt)?;
                let kernel = dir.path().join("kernel");
                fs::write(&kernel, found.bootable()).map_err(at(&kernel, "write"))?;
                interrupt.check()?;
                let contents = image::pack(options, Some(&found), &initramfs)?;
                (kernel, found.release, contents)
            }
            Engine::Uml { .. } => {
                let uml::Built { kernel, release } = uml::Recipe::new().kernel(interrupt).map_err(no_uml)?;
                (kernel, release, image::pack(options, None, &initramfs)?)
            }
        };
        interrupt.check()?;
        Ok(Self { dir, engine, kernel, initramfs, release, contents })
    }

    /// The memory that the caller's own files take at the most: while the guest boots, it holds the packed
    /// ones and the unpacked ones.
    pub fn memory_of_files(&self) -> Bytes {
        let own = self.contents.own_bytes();
        own + own
    }

    /// The program that runs the guest.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Boots the guest once, to find out whether it runs here.
    ///
    /// # Errors
    /// [`GuestError::NoUml`] says why it does not; [`GuestError::Interrupted`].
    pub fn try_out(&self, interrupt: &Interrupt) -> Result<(), GuestError> {
        let command = GuestCommand {
            arguments: vec![PROGRAM.to_owned(), "--version".to_owned()],
            files_back: Vec::new(),
            memory: TRIAL_MEMORY,
            limit: TRIAL_LIMIT,
        };
        self.run(&command, interrupt, &mut |_| {}).map(drop).map_err(no_uml)
    }

    /// The release of the kernel, as uname gives it.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Checks that the guest has a program, so that a command can be refused before anything boots.
    ///
    /// # Errors
    /// [`GuestError::NotInGuest`] names it.
    pub fn require(&self, program: &str) -> Result<(), GuestError> {
        if self.contents.has_program(program) {
            return Ok(());
        }
        Err(GuestError::NotInGuest { file: program.to_owned() })
    }

    /// Boots the guest, runs the command in it, and returns its results. Every line of the command's standard
    /// error is passed to `line` as it is written. The same command on the same image gives the same output,
    /// however busy this machine is; times differ by less than 1 %.
    ///
    /// # Errors
    /// [`GuestError`]; the guest has ended by then in any case.
    pub fn run(
        &self,
        command: &GuestCommand,
        interrupt: &Interrupt,
        line: &mut dyn FnMut(&str),
    ) -> Result<GuestOutput, GuestError> {
        let room = TempDir::with_prefix_in("run-", self.dir.path())
            .map_err(at(self.dir.path(), "make a file in"))?;
        let initramfs = room.path().join("initramfs");
        self.add_command(command, &initramfs).map_err(at(&initramfs, "write"))?;
        let machine = Machine {
            kernel: &self.kernel,
            initramfs: &initramfs,
            memory: command.memory,
            room: room.path(),
            limit: command.limit,
        };
        let mut result = Collected::default();
        let receive = &mut |kind, payload: Vec<u8>| match kind {
            MessageKind::Line => line(&String::from_utf8_lossy(&payload)),
            kind => result.add(kind, payload),
        };
        match self.engine {
            Engine::Qemu => qemu::run(&machine, interrupt, receive)?,
            Engine::Uml { processor } => uml::run(&machine, processor, interrupt, receive)?,
        }
        result.finish(command)
    }

    /// Writes the image's initramfs followed by a second one with the command.
    fn add_command(&self, command: &GuestCommand, path: &Path) -> io::Result<()> {
        let order = Order { arguments: command.arguments.clone(), files_back: command.files_back.clone() };
        let mut out = File::create(path)?;
        io::copy(&mut File::open(&self.initramfs)?, &mut out)?;
        let mut second = archive::Archive::new(out);
        second.file(Path::new(COMMAND), 0o644, &serde_json::to_vec(&order)?)?;
        second.finish()?.flush()
    }
}

/// The parts of a command's output that have arrived.
#[derive(Debug, Default)]
struct Collected {
    status: Option<GuestStatus>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    files: Vec<(usize, Vec<u8>)>,
    failure: Option<GuestError>,
}

impl Collected {
    fn add(&mut self, kind: MessageKind, payload: Vec<u8>) {
        let text = || String::from_utf8_lossy(&payload).into_owned();
        match kind {
            MessageKind::Line => {}
            MessageKind::Missing => self.failure = Some(GuestError::NotInGuest { file: text() }),
            MessageKind::Failed => self.failure = Some(GuestError::Init { reason: text() }),
            MessageKind::Stdout => self.stdout = payload,
            MessageKind::Stderr => self.stderr = payload,
            MessageKind::File { index } => self.files.push((index, payload)),
            MessageKind::End(status) => self.status = Some(status),
        }
    }

    fn finish(mut self, command: &GuestCommand) -> Result<GuestOutput, GuestError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let mut file = |wanted| {
            let at = self.files.iter().position(|(index, _)| *index == wanted)?;
            Some(self.files.swap_remove(at).1)
        };
        let files = (0..command.files_back.len()).map(&mut file).collect();
        let status = self.status.ok_or(GuestError::Garbled)?;
        Ok(GuestOutput { status, stdout: self.stdout, stderr: self.stderr, files })
    }
}
