//! Files that results are written to, as a user of a shared directory meets them.

#[path = "common/mod.rs"]
mod common;
#[path = "../../report/tests/fixture/mod.rs"]
mod fixture;
#[path = "../../linux/tests/common/mounts.rs"]
#[allow(dead_code, reason = "no loop device is needed")]
mod mounts;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use trimtab_core::policy::PolicyKind;

use common::possible;
use fixture::{fragment, without_drive};
use mounts::Mounted;

const NOBODY: u32 = 65534;
/// A synthetic simulation that is soon over.
const SHORT: [&str; 7] = ["sim", "--blocks", "64", "--pages-per-block", "16", "--drive-writes", "2"];

fn trimtab(arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trimtab")).args(arguments).args(paths).output().unwrap()
}

/// Returns the error of a verb that had to fail, which has to be one line.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
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

fn result_file(dir: &Path) -> PathBuf {
    let path = dir.join("result.json");
    let document = without_drive(fragment(&["ext4"], &PolicyKind::ALL, 1));
    fs::write(&path, serde_json::to_vec(&document).unwrap()).unwrap();
    path
}

/// A file system of 64 KiB that goes with it, on which nothing is free.
struct Full(Mounted);

impl Full {
    fn new() -> Self {
        let full = Self(Mounted::new(Path::new("tmpfs"), "tmpfs", "size=64k"));
        fs::write(full.0.target.join("all"), vec![1; 1 << 20]).unwrap_err();
        full
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0.target).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

#[test]
fn links_of_other_users_in_a_shared_directory_are_refused() {
    if !possible() {
        return;
    }
    let (root, shared, dear) = shared();
    let result = result_file(root.path());
    let (link, directory) = (shared.join("link.html"), shared.join("directory"));
    symlink(&dear, &link).unwrap();
    symlink(root.path(), &directory).unwrap();
    for link in [&link, &directory] {
        lchown(link, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let result = result.to_str().unwrap();
    let trace = root.path().join("trace.parquet");
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data/trim.iolog");
    assert!(trimtab(&["trace", "convert"], &[&small, &trace]).status.success());
    let replay = ["sim", trace.to_str().unwrap(), "--policy", "none", "--report"];
    for output in [
        trimtab(&[&SHORT[..], &["--json"]].concat(), &[&link]),
        trimtab(&["report", result, "--html"], &[&link]),
        trimtab(&["report", result, "--html"], &[&directory]),
        trimtab(&replay, &[&directory]),
        trimtab(&["trace", "convert", "--overwrite"], &[&trace, &link]),
        trimtab(&["doctor", "--capture"], &[&directory.join("new.tar.gz")]),
    ] {
        let said = refused(&output);
        assert!(said.contains("belongs to user 65534"), "{said}");
    }
    assert_eq!(fs::read(&dear).unwrap(), b"dear");
    assert!(!root.path().join("index.html").exists() && !root.path().join("sim.json").exists());
    assert!(!root.path().join("new.tar.gz").exists());
}

#[test]
fn results_keep_owner_and_permissions_of_the_file_they_replace() {
    if !possible() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let (json, link) = (dir.path().join("out.json"), dir.path().join("link.json"));
    fs::write(&json, "old").unwrap();
    fs::set_permissions(&json, Permissions::from_mode(0o640)).unwrap();
    chown(&json, Some(NOBODY), Some(NOBODY)).unwrap();
    symlink("out.json", &link).unwrap();
    let output = trimtab(&[&SHORT[..], &["--overwrite", "--json"]].concat(), &[&link]);
    assert!(output.status.success(), "{output:?}");
    let found = fs::metadata(&json).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (NOBODY, NOBODY, 0o640));
    assert!(fs::read(&json).unwrap().starts_with(b"{") && link.is_symlink());
}

#[test]
fn earlier_results_are_kept() {
    let dir = TempDir::new().unwrap();
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data/trim.iolog");
    let small = small.to_str().unwrap();
    let report = dir.path().to_str().unwrap();
    let replay = ["sim", small, "--profile", "nvme-tlc", "--policy", "none"];
    let workload = ["sweep", "--workload", "uniform", "--blocks", "64", "-o"];
    let cells = dir.path().join("cells");
    for (arguments, name, reaches_the_end) in [
        (&[&SHORT[..], &["--json"]].concat()[..], "given.json", true),
        (&[&replay[..], &["--json"]].concat(), "given.json", true),
        (&[&replay[..], &["--report", report]].concat(), "sim.json", true),
        (&[&workload[..], &[cells.to_str().unwrap(), "--report", report]].concat(), "sweep.json", true),
        (&["compare", "--report", report], "compare.json", false),
        (&["reproduce", "datalight", "--report", report], "reproduce.json", false),
    ] {
        let file = dir.path().join(name);
        fs::write(&file, "precious").unwrap();
        let named = arguments.last() == Some(&"--json");
        let paths = if named { vec![file.as_path()] } else { vec![] };
        let said = refused(&trimtab(arguments, &paths));
        assert_eq!(said, format!("trimtab: {} exists; --overwrite replaces it\n", file.display()));
        assert_eq!(fs::read(&file).unwrap(), b"precious");
        if reaches_the_end {
            let output = trimtab(&[&[arguments[0], "--overwrite"], &arguments[1..]].concat(), &paths);
            assert!(output.status.success(), "{output:?}");
            assert!(fs::read(&file).unwrap().starts_with(b"{"), "{arguments:?}");
        }
        fs::remove_file(&file).unwrap();
    }
    // The last page belongs to a sweep.
    let page = dir.path().join("index.html");
    let said = refused(&trimtab(&[&replay[..], &["--report", report]].concat(), &[]));
    assert_eq!(said, format!("trimtab: {} exists; --overwrite replaces it\n", page.display()));
}

#[test]
fn a_full_disk_leaves_no_part_of_a_file() {
    if !possible() {
        return;
    }
    let (full, dir) = (Full::new(), TempDir::new().unwrap());
    let at = |name: &str| full.0.target.join(name);
    let result = result_file(dir.path());
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data/trim.iolog");
    for output in [
        trimtab(&["trace", "convert"], &[&small, &at("trace.parquet")]),
        trimtab(&["report", result.to_str().unwrap(), "--html"], &[&at("page.html")]),
        trimtab(&[&SHORT[..], &["--json"]].concat(), &[&at("out.json")]),
    ] {
        let said = refused(&output);
        assert!(said.contains("No space left on device"), "{said}");
        assert_eq!(full.names(), ["all"]);
    }
}

#[test]
fn an_error_is_one_line_whatever_the_name() {
    let dir = TempDir::new().unwrap();
    let odd = dir.path().join("one\ntwo\u{1b}[31m");
    let none = Path::new("/nonexistent/a\nb");
    for output in [
        trimtab(&["report"], &[&odd]),
        trimtab(&["trace", "info"], &[&odd]),
        trimtab(&[&SHORT[..], &["--json"]].concat(), &[none]),
        trimtab(&["report", "--html", "x.html"], &[&odd]),
        trimtab(&["compare", "--profile"], &[Path::new("/nonexistent/a\nb.toml")]),
    ] {
        let said = refused(&output);
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
    let usage = trimtab(&["report", "--png"], &[]);
    assert_eq!(String::from_utf8(usage.stderr).unwrap().lines().count(), 1);
}

#[test]
fn a_profile_without_end_is_refused() {
    let dir = TempDir::new().unwrap();
    let endless = dir.path().join("endless.toml");
    symlink("/dev/zero", &endless).unwrap();
    let said = refused(&trimtab(&["compare", "--profile"], &[&endless]));
    assert!(said.contains("it is not a regular file"), "{said}");
}

#[test]
fn reader_that_has_seen_enough_is_no_failure() {
    let dir = TempDir::new().unwrap();
    let result = result_file(dir.path());
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data/trim.iolog");
    let [result, trace] = [&result, &trace].map(|path| path.to_str().unwrap());
    let replay = ["sim", trace, "--profile", "nvme-tlc", "--policy", "none"];
    for arguments in [
        &["drive", "profiles"][..],
        &["drive", "profiles", "--json"],
        &["drive", "ls"],
        &["trim", "--help"],
        &["daemon", "--help"],
        &["doctor"],
        &["doctor", "--json"],
        &["report", result],
        &["report", "--json", result],
        &["reproduce"],
        &["trace", "info", trace],
        &["trace", "head", trace],
        &replay,
        &SHORT,
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output =
            Command::new(env!("CARGO_BIN_EXE_trimtab")).args(arguments).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn every_verb_has_the_version_of_the_program() {
    let help = String::from_utf8(trimtab(&["--help"], &[]).stdout).unwrap();
    let verbs =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // The rest of a description is indented further.
    let verbs = verbs.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    let verbs: Vec<_> =
        verbs.filter_map(|line| line.split(' ').next()).filter(|verb| *verb != "help").collect();
    assert!(verbs.len() >= 14 && verbs.contains(&"trim"), "{verbs:?}");
    for verb in verbs {
        for option in ["--version", "-V"] {
            let output = trimtab(&[verb, option], &[]);
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{verb} {option}");
            assert_eq!(said, format!("trimtab-{verb} {}\n", env!("CARGO_PKG_VERSION")), "{verb} {option}");
        }
    }
}

#[test]
fn manual_pages_and_completions_are_those_of_the_help() {
    let dir = TempDir::new().unwrap();
    assert!(trimtab(&["generate", dir.path().to_str().unwrap()], &[]).status.success());
    let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
    let bash = read("completions/trimtab.bash");
    assert!(bash.contains(" trim ") && bash.contains(" --types "), "{bash}");
    assert!(!bash.contains("generate"), "a hidden verb is completed");
    for (page, name, usage) in [
        ("trimtab", "trimtab", "[OPTIONS] <COMMAND>"),
        ("trimtab-trim", "trimtab trim", "[OPTIONS] [MOUNT]..."),
        ("trimtab-trace-convert", "trimtab trace convert", "[OPTIONS]"),
    ] {
        let page = read(&format!("man/{page}.1"));
        let line = page.lines().skip_while(|line| *line != ".SH SYNOPSIS").nth(1).unwrap();
        assert!(line.replace('\\', "").starts_with(&format!("fB{name}fR {usage}")), "{line}");
    }
}
