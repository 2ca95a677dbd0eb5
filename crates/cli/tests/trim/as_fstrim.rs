//! `fstrim` that trims in slices, as `trimtab trim` does.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use trimtab_drive::Clock;

use crate::support::{TRIMTAB, Testbed, possible};

#[test]
fn paced_fstrim_discards_what_it_prints() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("ext4", Clock::Model);
    testbed.fragment(600, 200 << 10);
    let program = testbed.dir.path().join("fstrim");
    symlink(TRIMTAB, &program).unwrap();
    let below = testbed.place().join("below");
    fs::create_dir(&below).unwrap();
    let mut printed = String::new();
    let counted = testbed.during(|| {
        let mut command = Command::new(&program);
        command.args(["--paced", "-v"]).arg(&below).env("RUNTIME_DIRECTORY", testbed.dir.path());
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        printed = String::from_utf8(output.stdout).unwrap();
    });
    assert!(counted.discards > 100, "{counted:?}");
    let start = format!("{}: ", below.display());
    let end = format!("({} bytes) trimmed\n", counted.discard_bytes.0);
    assert!(printed.starts_with(&start) && printed.ends_with(&end), "{printed:?}, {counted:?}");
}

/// Runs `fstrim -v` of the testbed in a mount namespace whose /etc/trimtab.toml has this text; returns the exit
/// code and stderr.
fn with_configuration(testbed: &Testbed, text: &str) -> (Option<i32>, String) {
    let script = "mount -t tmpfs none \"$1/work\" && mkdir \"$1/work/upper\" \"$1/work/work\" \
        && printf '%s' \"$3\" >\"$1/work/upper/trimtab.toml\" \
        && mount -t overlay none -o \"lowerdir=/etc,upperdir=$1/work/upper,workdir=$1/work/work\" /etc \
        && exec -a fstrim \"$2\" -v \"$1/mnt\"";
    fs::create_dir_all(testbed.dir.path().join("work")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-c", script, "bash"]).arg(testbed.dir.path()).args([TRIMTAB, text]);
    let output = command.env("RUNTIME_DIRECTORY", testbed.dir.path()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn configuration_sets_what_fstrim_does_by_default() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("ext4", Clock::Model);
    // Only trims in slices keep a record of how far they got.
    let is_sliced = || {
        let names = fs::read_dir(testbed.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.into_iter().any(|name| name.to_string_lossy().starts_with("trim-"))
    };
    assert_eq!((with_configuration(&testbed, ""), is_sliced()), ((Some(0), String::new()), false));
    let incremental = with_configuration(&testbed, "[fstrim]\nincremental = true\n");
    assert_eq!((incremental, is_sliced()), ((Some(0), String::new()), true));
    let (code, broken) = with_configuration(&testbed, "[fstrim]\npace = true\n");
    assert_eq!(code, Some(0));
    assert!(broken.starts_with("fstrim: /etc/trimtab.toml: fstrim.pace: unknown field"), "{broken}");
    assert!(broken.ends_with("; trimming without it\n"), "{broken}");
}

#[test]
fn words_and_exit_codes_stay_in_slices() {
    if !possible() {
        return;
    }
    let mut testbed = Testbed::new("ext4", Clock::Model);
    let program = testbed.dir.path().join("fstrim");
    symlink(TRIMTAB, &program).unwrap();
    let run = |testbed: &Testbed, arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).arg(testbed.place()).env("RUNTIME_DIRECTORY", testbed.dir.path());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let refused = format!("fstrim: {}: FITRIM ioctl failed: Invalid argument\n", testbed.place().display());
    for arguments in [["-m", "2G"], ["-o", "64G"], ["-l", "100"]] {
        for option in ["--verbose", "--paced", "--incremental"] {
            let outcome = run(&testbed, &[&[option], &arguments[..]].concat());
            assert_eq!(outcome, (Some(1), refused.clone()), "{option} {arguments:?}");
        }
    }
    // FITRIM of a read-only ext4 works; trims in slices refuse it.
    testbed.unmount();
    testbed.mount("ro");
    for option in ["--verbose", "--paced", "--incremental"] {
        assert_eq!(run(&testbed, &[option]), (Some(0), String::new()), "{option}");
    }
}
