//! Tests of what the timers pass by, and of what the running service trims.

use std::path::PathBuf;

use trimtab_core::verdict::{Finding, Severity};
use trimtab_linux::mount::Listed;
use trimtab_linux::stack::{FileSystem, LayerKind, ServedMount, Setup, Stack};

use super::{YES, file_system, layer, nvme, row, taking, timed};
use crate::{ASSUMED_ERASE_BLOCK, diagnose};

/// A file system that is mounted at `targets` and examined at the first. It can be written to at those in `writable`.
fn mounted(targets: &[&str], writable: &[&str]) -> Stack {
    let mut top = file_system(targets[0], "xfs", "rw");
    let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
    if let LayerKind::FileSystem(found) = &mut top.kind {
        *found = FileSystem { targets: paths(targets), writable: paths(writable), ..found.clone() };
    }
    row([top, nvme(YES)])
}

fn line(target: &str, options: &str) -> Listed {
    Listed {
        source: PathBuf::from("UUID=1"),
        target: PathBuf::from(target),
        fstype: "xfs".to_owned(),
        options: options.split(',').map(str::to_owned).collect(),
    }
}

fn findings(stack: &Stack, setup: &Setup) -> Vec<Finding> {
    diagnose(stack, setup, ASSUMED_ERASE_BLOCK).findings
}

fn ids(stack: &Stack, setup: &Setup) -> Vec<String> {
    findings(stack, setup).into_iter().map(|finding| finding.id).collect()
}

fn listed(lines: &[Listed]) -> Setup {
    Setup { fstab: lines.to_vec(), ..timed() }
}

#[test]
fn fstrim_timer_passes_over_read_only_lines() {
    let ostree = mounted(&["/sysroot", "/etc", "/var"], &["/etc", "/var"]);
    let found = findings(&ostree, &listed(&[line("/sysroot", "ro"), line("/boot", "defaults")])).remove(0);
    assert_eq!(found.id, "fstrim-read-only");
    assert_eq!(
        found.message,
        "fstrim.timer passes /etc by: /etc/fstab names it only as /sysroot, where it is mounted read-only."
    );
    assert!(found.fix.unwrap().starts_with("systemctl edit --full fstrim.service   # in ExecStart --all"));
    let listed_read_only = listed(&[line("/sysroot", "ro")]);
    let reason = diagnose(&ostree, &listed_read_only, ASSUMED_ERASE_BLOCK).layers[0].reason.clone();
    assert!(reason.ends_with("; fstrim.timer is on and passes it by"), "{reason}");
    let now = listed(&[line("/sysroot", "defaults")]);
    assert_eq!(ids(&ostree, &now), ["fstrim-read-only"], "it is read-only by now");
    let both = [line("/sysroot", "ro"), line("/var", "defaults")];
    assert!(ids(&ostree, &listed(&both)).is_empty());
    let excluded = [line("/sysroot", "ro,X-fstrim.notrim"), line("/var", "X-fstrim.notrim")];
    assert_eq!(ids(&ostree, &listed(&excluded)), ["fstrim-skips"]);
    assert!(ids(&ostree, &timed()).is_empty(), "without an fstab all mounts count");
}

#[test]
fn own_timer_trims_read_only_lines_elsewhere() {
    let ostree = mounted(&["/sysroot", "/var"], &["/var"]);
    let own = |lines: &[Listed]| Setup {
        own_units: vec!["trimtab-trim.timer".to_owned()],
        fstab: lines.to_vec(),
        ..Setup::default()
    };
    assert!(ids(&ostree, &own(&[line("/sysroot", "ro")])).is_empty());
    assert_eq!(ids(&ostree, &own(&[line("/boot", "ro")])), ["not-in-fstab"]);
}

#[test]
fn root_is_added_only_where_fstab_lacks_it() {
    let bound = mounted(&["/", "/srv"], &["/srv"]);
    let other = [line("/boot", "defaults")];
    assert_eq!(ids(&bound, &listed(&other)), ["not-in-fstab"], "/ is read-only");
    let root = mounted(&["/", "/srv"], &["/", "/srv"]);
    assert!(ids(&root, &listed(&other)).is_empty());
    assert_eq!(ids(&root, &listed(&[line("/", "X-fstrim.notrim")])), ["fstrim-skips"]);
}

#[test]
fn fix_names_a_mount_point_that_can_be_written_to() {
    let found = findings(&mounted(&["/sysroot", "/var"], &["/var"]), &Setup::default()).remove(0);
    assert_eq!(found.id, "nobody-trims");
    assert!(found.fix.unwrap().starts_with("fstrim /var "));
    let everywhere = mounted(&["/sysroot", "/var"], &[]);
    assert!(findings(&everywhere, &Setup::default()).is_empty(), "nothing is ever freed there");
}

#[test]
fn running_service_trims_what_its_status_says() {
    let served = |is_trimmed| Some(vec![ServedMount { mount: PathBuf::from("/var"), is_trimmed }]);
    let two = mounted(&["/sysroot", "/var"], &["/var"]);
    let running = |served| Setup { served, container: true, ..Setup::default() };
    assert!(ids(&two, &running(served(true))).is_empty(), "also where no timer starts");
    assert_eq!(ids(&two, &running(served(false))), ["timer-not-in-container"]);
    let enabled =
        |served| Setup { own_units: vec!["trimtab.service".to_owned()], served, ..Setup::default() };
    assert!(ids(&two, &enabled(None)).is_empty());
    let found = findings(&two, &enabled(served(false))).remove(0);
    assert!(
        found.message.ends_with("and trimtab's service leaves it (trimtab status says why)."),
        "{found:?}"
    );
    let found = findings(&two, &Setup { is_down: true, ..enabled(None) }).remove(0);
    assert!(
        found.message.ends_with(
            "and trimtab.service is enabled, but does not run (systemctl status trimtab says why)."
        )
    );
    assert_eq!((found.id.as_str(), found.fix.as_deref()), ("nobody-trims", Some("systemctl start trimtab")));
    let target = diagnose(&two, &running(served(true)), ASSUMED_ERASE_BLOCK);
    assert!(target.layers[0].reason.ends_with("; trimtab daemon trims it"), "{}", target.layers[0].reason);
}

#[test]
fn names_with_newlines_stay_in_one_line() {
    let found = findings(&mounted(&["/a\nb'c"], &["/a\nb'c"]), &Setup::default()).remove(0);
    assert!(found.fix.unwrap().starts_with(r"fstrim $'/a\012b\'c' "));
}

#[test]
fn nested_file_system_that_is_trimmed_needs_no_mending() {
    let device = layer("loop0", LayerKind::Loop { file: PathBuf::from("/images/disk") });
    let below = file_system("/images", "ext4", "rw");
    let stack = row([file_system("/mnt", "ext4", "rw"), taking(YES, 4096, device), below, nvme(YES)]);
    let severity = |lines: &[Listed]| {
        let found = findings(&stack, &listed(lines));
        found.iter().find(|finding| finding.id == "nested-file-system").map(|finding| finding.severity)
    };
    assert_eq!(severity(&[line("/mnt", "rw")]), Some(Severity::Warning));
    assert_eq!(severity(&[line("/images", "rw")]), Some(Severity::Note));
}
