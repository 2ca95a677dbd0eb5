//! Whether a process and its descendants sleep: nothing of them runs or waits for a device.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Kernel functions in which a task sleeps although it waits for input or output that it asked for: libaio and
/// io_uring (`fs/aio.c`, `io_uring/io_uring.c`).
const WAITS_FOR_IO: [&str; 3] = ["read_events", "io_getevents", "io_cqring_wait"];

/// A process and its descendants, as procfs has them. A descendant whose parent has ended no longer counts.
#[derive(Debug, Clone)]
pub struct ProcessTree {
    procfs: PathBuf,
    leader: u32,
}

/// The tasks of a [`ProcessTree`] at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tasks {
    /// How long each task has run so far, in nanoseconds, by its id.
    ran_ns: BTreeMap<u32, u64>,
    /// Whether all of them sleep and none waits for a device.
    asleep: bool,
}

impl ProcessTree {
    /// The process `leader` and its descendants, read below `procfs`.
    pub fn new(procfs: &Path, leader: u32) -> Self {
        Self { procfs: procfs.to_owned(), leader }
    }

    /// Its tasks now; none where procfs doesn't tell, such as in a kernel without `CONFIG_SCHED_INFO`.
    pub fn tasks(&self) -> Option<Tasks> {
        let mut found = Tasks { ran_ns: BTreeMap::new(), asleep: true };
        let mut processes = vec![self.leader];
        while let Some(process) = processes.pop() {
            let dir = self.procfs.join(process.to_string()).join("task");
            for task in fs::read_dir(dir).ok()? {
                let task = task.ok()?;
                let id = task.file_name().to_str()?.parse().ok()?;
                let read = |name: &str| fs::read_to_string(task.path().join(name)).ok();
                found.asleep &= is_asleep(&read("stat")?, &read("wchan").unwrap_or_default())?;
                found.ran_ns.insert(id, read("schedstat")?.split_whitespace().next()?.parse().ok()?);
                let children = read("children")?;
                processes.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
            }
        }
        Some(found)
    }
}

impl Tasks {
    /// Whether nothing of them ran or waited for a device from `earlier`, a moment ago, until now.
    pub fn slept_since(&self, earlier: &Self) -> bool {
        self.asleep && *self == *earlier
    }
}

/// Whether the task with this `stat` and this `wchan` sleeps without waiting for a device.
fn is_asleep(stat: &str, wchan: &str) -> Option<bool> {
    // The name of the program before it can hold anything, brackets and spaces too.
    let state = stat.rsplit_once(')')?.1.split_whitespace().next()?;
    Some(
        matches!(state, "S" | "T" | "t" | "Z" | "X") && !WAITS_FOR_IO.iter().any(|name| wchan.contains(name)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_tasks_are_distinguished_from_those_waiting_for_a_device() {
        assert_eq!(is_asleep("7 (sh) S 1 7", "do_wait"), Some(true));
        assert_eq!(is_asleep("7 (a) D (b) S 1 7", "hrtimer_nanosleep"), Some(true));
        assert_eq!(is_asleep("7 (sh) D 1 7", "jbd2_log_wait_commit"), Some(false));
        assert_eq!(is_asleep("7 (sh) R 1 7", "0"), Some(false));
        assert_eq!(is_asleep("7 (fio) S 1 7", "io_cqring_wait"), Some(false));
        assert_eq!(is_asleep("7", ""), None);
    }

    /// A process in a procfs of files: its state, how long it ran, and its children.
    fn process(procfs: &Path, id: u32, state: char, ran_ns: u64, children: &str) {
        let task = procfs.join(format!("{id}/task/{id}"));
        fs::create_dir_all(&task).unwrap();
        fs::write(task.join("stat"), format!("{id} (x) {state} 1 1")).unwrap();
        fs::write(task.join("schedstat"), format!("{ran_ns} 0 1")).unwrap();
        fs::write(task.join("children"), children).unwrap();
    }

    #[test]
    fn tree_sleeps_while_none_of_its_tasks_runs() {
        let procfs = tempfile::tempdir().unwrap();
        let tree = ProcessTree::new(procfs.path(), 7);
        assert_eq!(tree.tasks(), None);
        process(procfs.path(), 7, 'S', 100, "8 9 ");
        process(procfs.path(), 8, 'S', 50, "");
        assert_eq!(tree.tasks(), None, "9 has just ended");
        process(procfs.path(), 9, 'S', 60, "");
        let before = tree.tasks().unwrap();
        assert!(tree.tasks().unwrap().slept_since(&before));
        process(procfs.path(), 9, 'S', 61, "");
        let after = tree.tasks().unwrap();
        assert!(!after.slept_since(&before), "it ran for a moment");
        process(procfs.path(), 9, 'D', 61, "");
        let waiting = tree.tasks().unwrap();
        assert!(!waiting.slept_since(&after) && !waiting.slept_since(&waiting.clone()));
    }
}
