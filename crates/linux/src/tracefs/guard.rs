//! A process that removes a tracefs instance after its owner, however that ends: a killed one removes nothing, and the
//! instance would go on tracing.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::child::inherit_nothing;

/// The beginning of the names of trimtab's instances.
pub(super) const PREFIX: &str = "trimtab-";
/// How long an ended owner may keep the instance open: the kernel closes its files one after the other.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is tried to remove the instance.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The program and the arguments that guard instances.
static PROGRAM: OnceLock<(PathBuf, Vec<OsString>)> = OnceLock::new();

/// From now on, each tracefs instance of this process has a process that removes it when this one ends: `program`, which is
/// run with `arguments` and the path of the instance, and has to call [`remove_after_owner`] with that path.
pub fn guard_instances(program: PathBuf, arguments: &[&str]) {
    let _ = PROGRAM.set((program, arguments.iter().map(OsString::from).collect()));
}

/// Waits until the process that started this one has ended or closed its end of standard input, and removes the tracefs
/// instance at `instance` unless its owner did.
///
/// # Errors
/// The kernel's error, or `InvalidInput` if the path does not lead to an instance of trimtab's.
pub fn remove_after_owner(instance: &Path) -> io::Result<()> {
    let is_ours = instance.file_name().is_some_and(|name| name.as_bytes().starts_with(PREFIX.as_bytes()));
    if !is_ours || !instance.parent().is_some_and(|parent| parent.ends_with("instances")) {
        return Err(ErrorKind::InvalidInput.into());
    }
    // Away from the signals of the owner's terminal. It fails where this process leads its group already.
    let _ = rustix::process::setsid();
    let _ = io::stdin().read_to_end(&mut Vec::new());
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match fs::remove_dir(instance) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                thread::sleep(POLL_INTERVAL);
            }
            removed => return removed,
        }
    }
}

/// The guard of an instance. Dropping it ends its process, which removes the instance if it is there.
#[derive(Debug)]
pub(super) struct Guard {
    process: Child,
}

impl Guard {
    /// Starts the guard of the instance at `path`, which need not exist yet; `None` if nobody called [`guard_instances`], or if
    /// the guard cannot be started.
    pub fn start(path: &Path) -> Option<Self> {
        let (program, arguments) = PROGRAM.get()?;
        let mut command = Command::new(program);
        command.args(arguments).arg(path).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        inherit_nothing(&mut command);
        command.spawn().map(|process| Self { process }).ok()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_instances_of_trimtab_is_removed() {
        let root = tempfile::tempdir().unwrap();
        for path in ["instances/other", "trimtab-1-2-3"] {
            let path = root.path().join(path);
            fs::create_dir_all(&path).unwrap();
            assert_eq!(remove_after_owner(&path).unwrap_err().kind(), ErrorKind::InvalidInput);
            assert!(path.exists());
        }
    }
}
