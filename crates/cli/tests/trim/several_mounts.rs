//! File systems that are mounted at several places, read-only at some.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use trimtab_core::document::trim::Outcome;
use trimtab_drive::Clock;

use crate::support::{TRIMTAB, Testbed, document, possible, refused, run};

/// A bind mount that ends with the test.
struct Bound(PathBuf);

impl Bound {
    fn new(source: &Path, place: PathBuf) -> Self {
        fs::create_dir(&place).unwrap();
        run(Command::new("mount").arg("--bind").args([source, &place]));
        Self(place)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        run(Command::new("umount").arg(&self.0));
    }
}

#[test]
fn file_system_is_trimmed_once_where_it_can_be_written_to() {
    if !possible() {
        return;
    }
    let bed = Testbed::new("xfs", Clock::Model);
    let (first, device) = (bed.place(), bed.drive.device().to_owned());
    let one = Bound::new(&first, bed.dir.path().join("one"));
    let other = Bound::new(&first, bed.dir.path().join("other"));
    run(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&first));
    let trimmed = |arguments: &[&str]| {
        let mut command = Command::new(TRIMTAB);
        command.args(["trim", "--json", "--dry-run"]).args(arguments);
        let output = command.env("RUNTIME_DIRECTORY", bed.dir.path()).output().unwrap();
        let ours = |target: &str| target.starts_with(bed.dir.path().to_str().unwrap());
        let targets = document(&output).targets.into_iter().filter(|target| ours(&target.target));
        targets.map(|target| (PathBuf::from(target.target), target.outcome)).collect::<Vec<_>>()
    };
    let link = bed.dir.path().join("link");
    symlink(&other.0, &link).unwrap();
    let list = bed.dir.path().join("list");
    let listed = |places: &[&PathBuf]| {
        let line = |place: &&PathBuf| format!("{} {} xfs defaults 0 0\n", device.display(), place.display());
        fs::write(&list, places.iter().map(line).collect::<String>()).unwrap();
        trimmed(&["-I", list.to_str().unwrap()])
    };
    let at = |place: &PathBuf| vec![(place.clone(), Outcome::Planned)];
    assert_eq!(trimmed(&["-a"]), at(&one.0));
    assert_eq!(listed(&[&one.0, &other.0]), at(&one.0));
    assert_eq!(listed(&[&first, &other.0]), at(&other.0), "the first is read-only");
    assert_eq!(listed(&[&first]), at(&one.0), "it can be written to elsewhere");
    assert_eq!(listed(&[&link]), at(&other.0));
    let (code, reason) = refused(&[], &first);
    assert_eq!(code, Some(1));
    let hint = format!("is mounted read-only there; to trim its file system, name {}", one.0.display());
    assert!(reason.contains(&hint), "{reason}");
}
