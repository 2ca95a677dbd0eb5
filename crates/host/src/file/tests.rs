use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};

use tempfile::TempDir;

use super::*;
use crate::file::create_directory;

const NOBODY: u32 = 65534;

/// The tests that give files to other users need root; says so where that is missing.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root || std::env::var_os("CI").is_none(), "a test that needs root cannot be skipped in CI");
    if !is_root {
        eprintln!("skipped: it needs root");
    }
    is_root
}

/// A directory like `/tmp`, and beside it a file that nobody may lose.
fn shared() -> (TempDir, PathBuf, PathBuf) {
    let root = TempDir::new().unwrap();
    let (shared, dear) = (root.path().join("shared"), root.path().join("dear"));
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    fs::write(&dear, "dear").unwrap();
    (root, shared, dear)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_file_is_replaced_and_nothing_else_stays_behind() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("out");
    let output = Output::open(&path).unwrap();
    assert!(!output.exists().unwrap() && names(dir.path()).is_empty(), "opening it writes nothing");
    output.replace(b"one").unwrap();
    output.replace_durably(b"two").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"two");
    let mut dropped = output.draft().unwrap();
    dropped.prepare().unwrap();
    drop(dropped);
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn draft_creates_only_missing_files() {
    let dir = TempDir::new().unwrap();
    let output = Output::open(&dir.path().join("out")).unwrap();
    let (first, second) = (output.draft().unwrap(), output.draft().unwrap());
    first.create().unwrap();
    assert!(matches!(second.create().unwrap_err(), OutputError::Exists { .. }));
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn a_draft_with_a_name_is_created_and_removed_like_one_without() {
    let dir = TempDir::new().unwrap();
    let output = Output::open(&dir.path().join("out")).unwrap();
    let named = || {
        let mut draft = output.draft().unwrap();
        draft.prepare().unwrap();
        draft
    };
    let second = named();
    named().create().unwrap();
    assert!(matches!(second.create().unwrap_err(), OutputError::Exists { .. }));
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn owner_and_permissions_are_kept() {
    if !is_root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("out");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    chown(&path, Some(NOBODY), Some(12)).unwrap();
    Output::open(&path).unwrap().replace(b"new").unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (NOBODY, 12, 0o640));
    assert_eq!(fs::read(&path).unwrap(), b"new");
    let private = dir.path().join("private");
    Output::open_private(&private).unwrap().replace(b"new").unwrap();
    assert_eq!(fs::metadata(&private).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn own_links_are_followed_and_stay() {
    let (root, shared, dear) = shared();
    symlink("../shared/second", shared.join("first")).unwrap();
    symlink(&dear, shared.join("second")).unwrap();
    symlink(&shared, root.path().join("directory")).unwrap();
    Output::open(&root.path().join("directory/first")).unwrap().replace(b"new").unwrap();
    assert_eq!(fs::read(&dear).unwrap(), b"new");
    assert!(shared.join("first").is_symlink() && shared.join("second").is_symlink());
    symlink("new", shared.join("dangling")).unwrap();
    Output::open(&shared.join("dangling")).unwrap().replace(b"new").unwrap();
    assert_eq!(fs::read(shared.join("new")).unwrap(), b"new");
    symlink("round", shared.join("round")).unwrap();
    assert!(matches!(Output::open(&shared.join("round")).unwrap_err(), OutputError::Io { .. }));
}

#[test]
fn links_and_files_of_others_are_refused_in_sticky_directories() {
    if !is_root() {
        return;
    }
    let (root, shared, dear) = shared();
    let foreign = |name: &str, target: &Path| {
        symlink(target, shared.join(name)).unwrap();
        lchown(shared.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
    };
    foreign("link", &dear);
    foreign("dangling", &root.path().join("planted"));
    foreign("directory", root.path());
    fs::write(shared.join("file"), "theirs").unwrap();
    chown(shared.join("file"), Some(NOBODY), None).unwrap();
    symlink("link", shared.join("through")).unwrap();
    for name in ["link", "dangling", "directory/dear", "directory/planted", "file", "through"] {
        let refused = Output::open(&shared.join(name)).unwrap_err();
        assert!(matches!(refused, OutputError::Foreign { owner: NOBODY, .. }), "{name}: {refused}");
    }
    let refused = create_directory(&shared.join("directory/planted")).unwrap_err();
    assert!(matches!(refused, OutputError::Foreign { .. }), "{refused}");
    assert_eq!(fs::read(&dear).unwrap(), b"dear");
    assert!(!root.path().join("planted").exists());
}

#[test]
fn links_of_others_are_refused_at_the_end_of_a_path_in_any_directory() {
    if !is_root() {
        return;
    }
    let (root, _shared, dear) = shared();
    let theirs = root.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    for (name, target) in
        [("link", dear.clone()), ("dangling", root.path().join("planted")), ("in", root.path().to_owned())]
    {
        symlink(target, theirs.join(name)).unwrap();
        lchown(theirs.join(name), Some(NOBODY), None).unwrap();
    }
    chown(&theirs, Some(NOBODY), None).unwrap();
    for name in ["link", "dangling"] {
        let refused = Output::open(&theirs.join(name)).unwrap_err();
        assert!(matches!(refused, OutputError::ForeignLink { owner: NOBODY, .. }), "{name}: {refused}");
    }
    Output::open(&theirs.join("in/new")).unwrap().replace(b"new").unwrap();
    assert_eq!(fs::read(root.path().join("new")).unwrap(), b"new", "a home may be behind a link of its user");
    assert_eq!(fs::read(&dear).unwrap(), b"dear");
    assert!(!root.path().join("planted").exists());
}

#[test]
fn a_link_that_comes_later_is_not_followed() {
    let (_root, shared, dear) = shared();
    let path = shared.join("out");
    let output = Output::open(&path).unwrap();
    let draft = output.draft().unwrap();
    symlink(&dear, &path).unwrap();
    assert!(matches!(draft.replace().unwrap_err(), OutputError::NotAFile { .. }));
    assert!(matches!(output.replace(b"new").unwrap_err(), OutputError::NotAFile { .. }));
    assert_eq!(fs::read(&dear).unwrap(), b"dear");
}

#[test]
fn a_directory_that_is_moved_later_still_takes_the_file() {
    let (root, shared, dear) = shared();
    fs::create_dir(shared.join("mine")).unwrap();
    let output = Output::open(&shared.join("mine/dear")).unwrap();
    fs::rename(shared.join("mine"), shared.join("moved")).unwrap();
    symlink(root.path(), shared.join("mine")).unwrap();
    output.replace(b"new").unwrap();
    assert_eq!(fs::read(&dear).unwrap(), b"dear");
    assert_eq!(fs::read(shared.join("moved/dear")).unwrap(), b"new");
}

#[test]
fn path_that_is_no_file_is_refused_with_the_reason() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for (path, reason) in [
        (dir.path().to_owned(), "is not a regular file"),
        (dir.path().join(".."), "is not a regular file"),
        (PathBuf::from("/dev/null"), "is not a regular file"),
        (PathBuf::from("/"), "is not a regular file"),
        (dir.path().join("none/file"), "there is no directory"),
        (dir.path().join("file/file"), "there is no directory"),
    ] {
        let refused = Output::open(&path).unwrap_err().to_string();
        assert!(refused.contains(reason), "{path:?}: {refused}");
    }
    let nested = create_directory(&dir.path().join("one/two")).unwrap_err().to_string();
    assert!(nested.contains("there is no directory"), "{nested}");
    create_directory(&dir.path().join("one")).unwrap();
    create_directory(&dir.path().join("one/two")).unwrap();
    Output::open(&dir.path().join("one/./two/../file")).unwrap().replace(b"new").unwrap();
    assert!(dir.path().join("one/file").exists());
}
