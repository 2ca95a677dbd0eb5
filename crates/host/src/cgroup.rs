//! The memory that control groups leave a process: those of containers and of jobs of a cluster.
//!
//! Sources: `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst` of the kernel.

use std::fs;
use std::path::{Component, Path};

use trimtab_core::Bytes;

/// The files of one version.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// The lines of `memory.stat` that count what the kernel takes back when it is short of memory.
    cache: &'static [&'static str],
}

const FIRST: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: &["total_inactive_file", "total_active_file"],
};
const SECOND: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    cache: &["inactive_file", "active_file", "slab_reclaimable"],
};

/// Returns what is left of the tightest memory limit of the groups that this process is in; none where there is no limit.
/// `procfs` and `cgroups` are where procfs and control groups are mounted.
pub(crate) fn memory_left(procfs: &Path, cgroups: &Path) -> Option<Bytes> {
    let groups = fs::read_to_string(procfs.join("self/cgroup")).ok()?;
    groups.lines().filter_map(|line| left(line, cgroups)).min()
}

/// The memory that the groups on a line of `cgroup` leave. A line is `0::/user.slice` or, of the first version, `5:cpu,memory:/job`.
fn left(line: &str, cgroups: &Path) -> Option<Bytes> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let (top, files) = match controllers {
        "" => (cgroups.to_owned(), SECOND),
        list if list.split(',').any(|controller| controller == "memory") => (cgroups.join("memory"), FIRST),
        _ => return None,
    };
    // In a namespace of control groups, a path that leaves it leads to nothing that is mounted.
    let inner = path.trim_start_matches('/');
    let is_outside = Path::new(inner).components().any(|part| part == Component::ParentDir);
    let group = if is_outside { top.clone() } else { top.join(inner) };
    let groups = group.ancestors().take_while(|group| group.starts_with(&top));
    groups.filter_map(|group| left_in(group, &files)).min()
}

fn left_in(group: &Path, files: &Files) -> Option<Bytes> {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number(files.limit)?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let lines = stat.lines().filter_map(|line| line.split_once(' '));
    let cache = lines
        .filter(|(name, _)| files.cache.contains(name))
        .filter_map(|(_, bytes)| bytes.parse::<u64>().ok());
    let used = number(files.usage).unwrap_or(0).saturating_sub(cache.sum::<u64>());
    Some(Bytes(limit.saturating_sub(used)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A tree with `proc` and `cg` in it.
    struct Tree(TempDir);

    impl Tree {
        fn file(self, path: &str, text: impl AsRef<[u8]>) -> Self {
            let file = self.0.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
            self
        }

        fn left(&self) -> Option<Bytes> {
            memory_left(&self.0.path().join("proc"), &self.0.path().join("cg"))
        }
    }

    #[test]
    fn tightest_limit_counts() {
        let mib = |mib: u64| format!("{}\n", mib << 20);
        let machine = Tree(tempfile::tempdir().unwrap())
            .file("proc/self/cgroup", "0::/jobs/one\n")
            .file("cg/jobs/one/memory.max", "max\n")
            .file("cg/jobs/memory.max", mib(100))
            .file("cg/jobs/memory.current", mib(60))
            .file(
                "cg/jobs/memory.stat",
                "file 1\ninactive_file 8388608\nactive_file 1048576\nslab_reclaimable 1048576\n",
            );
        assert_eq!(machine.left(), Some(Bytes(50 << 20)));
        let machine =
            machine.file("cg/jobs/one/memory.max", mib(20)).file("cg/jobs/one/memory.current", mib(30));
        assert_eq!(machine.left(), Some(Bytes::ZERO));
    }

    #[test]
    fn first_version_and_missing_groups_are_understood() {
        let machine = Tree(tempfile::tempdir().unwrap())
            .file("proc/self/cgroup", "7:cpu,memory:/job\n3:cpuset:/\n0::/../elsewhere\n")
            .file("cg/memory/job/memory.limit_in_bytes", "1048576\n")
            .file("cg/memory/job/memory.usage_in_bytes", "65536\n");
        assert_eq!(machine.left(), Some(Bytes(1_048_576 - 65_536)));
        let machine = machine.file("proc/self/cgroup", "0::/\n");
        assert_eq!(machine.left(), None);
    }
}
