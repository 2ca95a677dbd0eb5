//! The user's own command as a workload.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use trimtab_core::document::WorkloadDescription;
use trimtab_core::shell::command_line;
use trimtab_linux::PROCFS;
use trimtab_linux::process_tree::{ProcessTree, Tasks};

use super::{Workload, tree};
use crate::error::LabError;
use crate::stage::Stage;
use trimtab_guest::program::{Reason, run_watched};

/// The command's own directory: it may delete everything in it.
const DIRECTORY: &str = "work";
/// Stands in the command's arguments for its directory.
const PLACE: &[u8] = b"{dir}";

/// The workload `exec`.
pub struct ExecWorkload {
    command: Vec<OsString>,
    seed: u64,
}

impl ExecWorkload {
    /// Runs `command`: a program and its arguments.
    pub fn new(command: Vec<OsString>, seed: u64) -> Self {
        Self { command, seed }
    }
}

/// `word` with every `{dir}` replaced by `dir`.
fn placed(word: &OsStr, dir: &Path) -> OsString {
    let (mut out, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(at) = rest.windows(PLACE.len()).position(|window| window == PLACE) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(dir.as_os_str().as_bytes());
        rest = &rest[at + PLACE.len()..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

impl Workload for ExecWorkload {
    fn description(&self) -> WorkloadDescription {
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        WorkloadDescription {
            name: "exec".to_owned(),
            summary: command_line(&words),
            seed: self.seed,
            delete_steps: Vec::new(),
            write_step: None,
            has_pauses: false,
            divisible: false,
        }
    }

    fn names_its_pauses(&self) -> bool {
        // A command cannot announce them.
        false
    }

    fn unmounts(&self) -> bool {
        false
    }

    fn run(&self, stage: &mut Stage) -> Result<(), LabError> {
        let dir = stage.work().make_dir(Path::new(DIRECTORY)).map(|()| stage.work().dir().join(DIRECTORY))?;
        let mut stderr = None;
        stage.activity_with_sleeps("exec", |work| {
            let words: Vec<_> = self.command.iter().map(|word| placed(word, &dir)).collect();
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).stdin(Stdio::null()).current_dir(&dir);
            let mut sleeps = Sleeps::default();
            stderr = run_watched(&mut command, Reason::Last, work.interrupt(), &mut |pid| sleeps.look(pid))?;
            work.sync()?;
            Ok(sleeps.total)
        })?;
        stage.keep_stderr(stderr);
        if !dir.exists() {
            return Ok(());
        }
        let (work, left) = (stage.work(), tree::entries(&dir)?);
        let files = left.iter().filter(|entry| entry.is_file());
        files.into_iter().try_for_each(|entry| work.adopt(&Path::new(DIRECTORY).join(&entry.path)))
    }
}

/// The wall time in which a command slept.
#[derive(Default)]
struct Sleeps {
    total: Duration,
    /// The time of the last check, and the command's tasks then.
    last: Option<(Instant, Tasks)>,
}

impl Sleeps {
    /// Checks the tasks of the command `leader`: it slept since the last check if they did nothing since.
    fn look(&mut self, leader: Pid) {
        let now = Instant::now();
        let tasks = ProcessTree::new(Path::new(PROCFS), leader.as_raw_nonzero().get().unsigned_abs()).tasks();
        if let (Some(tasks), Some((then, before))) = (&tasks, &self.last)
            && tasks.slept_since(before)
        {
            self.total += now - *then;
        }
        self.last = tasks.map(|tasks| (now, tasks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_filled() {
        let dir = Path::new("/mnt/x");
        assert_eq!(placed(OsStr::new("--a={dir}/1:{dir}"), dir), "--a=/mnt/x/1:/mnt/x");
        assert_eq!(placed(OsStr::new("{di}"), dir), "{di}");
    }
}
