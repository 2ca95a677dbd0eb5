//! Why a guest can't be made, or failed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use trimtab_core::Bytes;

use trimtab_core::interrupt::Interrupted;

use super::kernel_choice::KernelChoice;

/// The program that runs guests.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// Why a guest can't be made, or failed.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// QEMU isn't installed.
    #[error("{} is not in PATH; install it (apt-get install qemu-system-x86) or use --clock real", QEMU)]
    NoQemu,
    /// A program that fetches kernels isn't there.
    #[error(
        "cannot fetch kernel {kernel}: there is no {} here; name an installed kernel instead (--kernel \
         /boot/vmlinuz-RELEASE)",
        program.display()
    )]
    NoFetcher {
        /// The kernel.
        kernel: KernelChoice,
        /// The program.
        program: PathBuf,
    },
    /// The package lists of this machine know no such kernel.
    #[error(
        "this machine's package lists have no kernel {kernel}; as root, run apt-get update, or choose another \
         (apt-cache search linux-image)"
    )]
    NoPackage {
        /// The kernel.
        kernel: KernelChoice,
    },
    /// The kernel's package couldn't be fetched or unpacked.
    #[error("cannot fetch {package}: {} said: {said}", program.display())]
    Fetch {
        /// The package.
        package: String,
        /// The program that failed.
        program: PathBuf,
        /// The line that says why.
        said: String,
    },
    /// The kernel can't be read.
    #[error(
        "cannot read the kernel {}; run this as root, make the file readable, or use --kernel debian:6.12",
        path.display()
    )]
    KernelUnreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is no kernel.
    #[error("{} is not a Linux kernel image for x86 (bzImage)", path.display())]
    NotAKernel {
        /// The file.
        path: PathBuf,
    },
    /// The kernel's modules aren't where they are expected.
    #[error("kernel {release} has no modules in {}; name their directory: --kernel VMLINUZ:MODULES_DIR", dir.display())]
    NoModules {
        /// The kernel's release.
        release: String,
        /// The directory in which they were expected.
        dir: PathBuf,
    },
    /// The kernel lacks a driver.
    #[error("kernel {release} has no module {module}, which the guest needs; choose another --kernel")]
    NoModule {
        /// The kernel's release.
        release: String,
        /// The module.
        module: String,
    },
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The action that failed, such as `read`.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A program that the guest needs isn't on this machine.
    #[error("{program} is not in PATH; install it or add /usr/sbin to PATH")]
    NoProgram {
        /// The program.
        program: String,
    },
    /// A library that a program needs isn't on this machine.
    #[error("cannot put {} into the guest: its library {library} is missing", program.display())]
    NoLibrary {
        /// The program or library that needs it.
        program: PathBuf,
        /// The library.
        library: String,
    },
    /// The command isn't in the guest.
    #[error(
        "the guest has no {file}; only the usual programs, and files named with --guest-file, exist there"
    )]
    NotInGuest {
        /// The missing file.
        file: String,
    },
    /// The guest's memory was used up.
    #[error("the guest ran out of its {memory} of memory; use a smaller workload or drive, or fewer files")]
    OutOfMemory {
        /// Its memory.
        memory: Bytes,
    },
    /// The guest did not end in time.
    #[error("the guest did not finish within {} and was stopped; allow it more (--guest-limit) if the workload computes or sleeps for long; its console ends with: {}", humantime::format_duration(*limit), last(console))]
    Hung {
        /// The limit.
        limit: std::time::Duration,
        /// The last lines of its console.
        console: String,
    },
    /// The guest ended without results.
    #[error("the guest ended without results; its console ends with: {}", last(console))]
    Died {
        /// The last lines of its console.
        console: String,
    },
    /// QEMU couldn't run the guest.
    #[error("{} failed ({status}): {said}", QEMU)]
    Qemu {
        /// How it ended.
        status: ExitStatus,
        /// The last line that it said.
        said: String,
    },
    /// A program that builds the kernel of User Mode Linux isn't there.
    #[error("building User Mode Linux needs {program}; install it (apt-get install {package})")]
    NoBuilder {
        /// The program.
        program: &'static str,
        /// Debian's package with it.
        package: &'static str,
    },
    /// The kernel of User Mode Linux couldn't be built.
    #[error("cannot build User Mode Linux {release}: {program} said: {said}")]
    Build {
        /// The version of the source.
        release: String,
        /// The program that failed.
        program: &'static str,
        /// The line that says why.
        said: String,
    },
    /// User Mode Linux does not run on this machine.
    #[error("User Mode Linux does not run here: {reason}")]
    NoUml {
        /// Its message.
        reason: String,
    },
    /// A program in User Mode Linux computes for ever.
    #[error(
        "in User Mode Linux nothing interrupts a program that waits in a loop: {process}; use --engine qemu for this \
         workload"
    )]
    Spins {
        /// The process, and its processor time.
        process: String,
    },
    /// The guest's system couldn't be set up.
    #[error("the guest could not be set up: {reason}")]
    Init {
        /// The first process's message.
        reason: String,
    },
    /// The guest's results are damaged or incomplete.
    #[error("the results of the guest are damaged or incomplete")]
    Garbled,
}

/// Wraps an I/O error with the file it happened on.
pub(super) fn at<'a>(path: &'a Path, action: &'static str) -> impl FnOnce(io::Error) -> GuestError + 'a {
    move |source| GuestError::File { action, path: path.to_owned(), source }
}

/// Returns the line of a console's end that says most: the one about a panic, or the last.
pub(super) fn last(console: &str) -> &str {
    let panic = console.lines().find(|line| line.contains("Kernel panic"));
    panic.or_else(|| console.lines().next_back()).unwrap_or("(nothing)")
}
