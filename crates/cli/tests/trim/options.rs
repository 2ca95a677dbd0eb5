//! The options and exit codes are those of fstrim.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::trim::Outcome;
use trimtab_drive::Clock;
use trimtab_linux::{loop_device, mount};

use crate::support::{TRIMTAB, Testbed, document, possible, run, sent};

#[test]
fn range_and_minimum_match_fstrim() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs"] {
        let mut testbed = Testbed::new(fstype, Clock::Model);
        testbed.fragment(200, 200 << 10);
        for arguments in [["-o", "200M", "-l", "300M", "-m", "0"], ["-o", "0", "-l", "1G", "-m", "512K"]] {
            let theirs = testbed.during(|| testbed.fstrim(&arguments));
            testbed.unmount();
            testbed.mount("");
            let ours = testbed.during(|| drop(testbed.trim(&arguments)));
            assert_eq!(ours.discard_bytes, theirs.discard_bytes, "{fstype} {arguments:?}");
            assert!(ours.discard_bytes > Bytes(100 << 20));
            testbed.unmount();
            testbed.mount("");
        }
    }
}

#[test]
fn range_without_free_space_is_no_trimmed_one() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("btrfs", Clock::Model);
    let output = testbed.command(&["-o", "20G"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    assert!(
        printed.contains(": nothing discarded from 20 GiB to the end: no free extent there is"),
        "{printed}"
    );
    // The kernel remembers what it has trimmed outside of chunks, and --full does not change that.
    assert!(printed.contains("(btrfs does it again after it is mounted anew)"), "{printed}");
    // The kernel trims space outside of chunks whatever -m says, and remembers it.
    let [_, printed] = [(); 2].map(|()| testbed.command(&["-m", "2G"]).output().unwrap().stdout);
    let printed = String::from_utf8(printed).unwrap();
    let short = ": nothing discarded from 0 B to the end: no free extent there is 2 GiB or longer, or";
    assert!(printed.contains(short), "{printed}");
}

#[test]
fn quiet_and_verbose_change_the_output() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("ext4", Clock::Model);
    let printed = |arguments: &[&str]| {
        let output = testbed.command(arguments).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(printed(&["-q"]), "");
    let again = printed(&[]);
    assert!(
        again.ends_with(": nothing discarded: all that is free was trimmed before (--full does it again)\n")
    );
    let full = printed(&["--full"]);
    assert!(full.contains(" MiB discarded with ") && full.lines().count() == 1, "{full}");
    let verbose = printed(&["--full", "-v"]);
    assert!(verbose.contains("ext4 on loop") && verbose.contains("held the drive for"), "{verbose}");
    let dry = printed(&["-n"]);
    assert!(dry.contains("would trim") && dry.contains("--profile NAME tells"), "{dry}");
    let timed = printed(&["-n", "--profile", "ocz-agility-3"]);
    assert!(timed.contains(" on the drive ocz-agility-3\n"), "{timed}");
}

/// Trims what `list` names, in a file for `-I`.
fn listed(list: &str, arguments: &[&str]) -> (Option<i32>, Vec<(String, Outcome)>) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("list");
    fs::write(&file, list).unwrap();
    let mut command = Command::new(TRIMTAB);
    command.args(["trim", "--json", "-I"]).arg(format!("/nonexistent:{}", file.display())).args(arguments);
    let output = command.env("RUNTIME_DIRECTORY", dir.path()).output().unwrap();
    let targets = document(&output).targets;
    (output.status.code(), targets.into_iter().map(|target| (target.target, target.outcome)).collect())
}

#[test]
fn lists_select_file_systems() {
    if !possible() {
        return;
    }
    let (one, other) = (Testbed::new("ext4", Clock::Model), Testbed::new("xfs", Clock::Model));
    let line = |testbed: &Testbed, options: &str| {
        format!(
            "{} {} {} {options} 0 0\n",
            testbed.drive.device().display(),
            testbed.place().display(),
            testbed.fstype
        )
    };
    let name = |testbed: &Testbed| testbed.place().display().to_string();
    let both =
        line(&one, "defaults") + "# nothing\nUUID=1 /not/mounted ext4\nproc /proc proc\n" + &line(&other, "");
    let done = |testbed: &Testbed| (name(testbed), Outcome::Done);
    assert_eq!(listed(&both, &[]), (Some(0), vec![done(&one), done(&other)]));
    let without = line(&one, "rw,X-fstrim.notrim") + &line(&other, "defaults");
    assert_eq!(listed(&without, &[]), (Some(0), vec![done(&other)]));
    let dir = TempDir::new().unwrap();
    let list = dir.path().join("list");
    fs::write(&list, format!("UUID=1 /not/mounted ext4\nUUID=2 none swap sw\n{without}")).unwrap();
    let verbose = Command::new(TRIMTAB).args(["trim", "-nv", "-I"]).arg(&list).output().unwrap();
    let said = String::from_utf8(verbose.stderr).unwrap();
    let notrim = format!("trimtab: passed over: {}: its line has X-fstrim.notrim\n", name(&one));
    assert_eq!(said, format!("trimtab: passed over: /not/mounted: it is not mounted\n{notrim}"));
    fs::write(&list, "# UNCONFIGURED FSTAB\n").unwrap();
    let nothing = Command::new(TRIMTAB).args(["trim", "-v", "-I"]).arg(&list).output().unwrap();
    let said = String::from_utf8(nothing.stderr).unwrap();
    assert_eq!(said, "trimtab: no mounted file system is selected: nothing is trimmed\n");
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let lines = mountinfo.lines().filter(|line| line.contains(&name(&one)));
    let lines: Vec<_> = lines.collect();
    assert_eq!(listed(&lines.join("\n"), &[]), (Some(0), vec![done(&one)]));
    let (code, failed) = listed(&both, &["-o", "1T"]);
    assert_eq!((code, failed.len()), (Some(32), 2), "both end before");
    assert_eq!(listed("", &[]), (Some(0), Vec::new()));
    let none = Command::new(TRIMTAB).args(["trim", "-I", "/nonexistent"]).output().unwrap();
    let said = String::from_utf8_lossy(&none.stderr);
    assert!(!none.status.success() && said.contains("cannot read the list /nonexistent: No such"), "{said}");
}

#[test]
fn types_select_among_listed_file_systems() {
    if !possible() {
        return;
    }
    let (one, other) = (Testbed::new("ext4", Clock::Model), Testbed::new("xfs", Clock::Model));
    let line = |testbed: &Testbed| format!("x {} auto\n", testbed.place().display());
    let both = line(&one) + &line(&other);
    let done = |testbed: &Testbed| (testbed.place().display().to_string(), Outcome::Done);
    for types in ["EXT4", "btrfs,ext4", "noxfs"] {
        assert_eq!(listed(&both, &["-t", types]), (Some(0), vec![done(&one)]), "{types}");
    }
    assert_eq!(listed(&both, &["--types", "noext4"]), (Some(0), vec![done(&other)]));
    assert_eq!(listed(&both, &["-t", "xfs,ext4"]), (Some(0), vec![done(&one), done(&other)]));
    assert_eq!(listed(&both, &["-t", "btrfs"]), (Some(0), Vec::new()));

    let trim = |arguments: &[&str]| Command::new(TRIMTAB).arg("trim").args(arguments).output().unwrap();
    let list = one.dir.path().join("list");
    fs::write(&list, &both).unwrap();
    let verbose = trim(&["-nv", "-t", "xfs", "-I", list.to_str().unwrap()]);
    let said = String::from_utf8(verbose.stderr).unwrap();
    let expected = format!("passed over: {}: its type is not one of --types\n", one.place().display());
    assert_eq!(said, format!("trimtab: {expected}"));
    // Other tests' file systems come and go meanwhile.
    let all = document(&trim(&["--json", "-n", "-a", "-t", "xfs"])).targets;
    let has = |testbed: &Testbed| all.iter().any(|target| Path::new(&target.target) == testbed.place());
    assert!(has(&other) && !has(&one), "{all:?}");
    for arguments in [&["-t", "ext4", "/"][..], &["-t", "ext4"]] {
        let refused = trim(arguments);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!((refused.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains("--all|--fstab|--listed-in"), "{said}");
    }
}

#[test]
fn unsupported_file_system_is_reported_or_skipped() {
    if !possible() {
        return;
    }
    // ramfs punches no holes, so that a loop device on it discards nothing.
    let dir = TempDir::new().unwrap();
    let (memory, upper) = (dir.path().join("memory"), dir.path().join("upper"));
    [&memory, &upper].into_iter().for_each(|place| fs::create_dir(place).unwrap());
    mount::mount(Path::new("memory"), &memory, "ramfs", "").unwrap();
    File::create(memory.join("image")).unwrap().set_len(64 << 20).unwrap();
    let device = loop_device::attach(&memory.join("image"), Bytes(512)).unwrap();
    run(Command::new("mkfs.ext4").arg("-q").arg(&device));
    mount::mount(&device, &upper, "ext4", "").unwrap();
    let told = std::panic::catch_unwind(|| says_that_it_takes_none(&upper));
    mount::unmount(&upper).unwrap();
    loop_device::detach(&device).unwrap();
    mount::unmount_lazily(&memory).unwrap();
    told.unwrap();
}

fn says_that_it_takes_none(place: &Path) {
    let runtime = TempDir::new().unwrap();
    let trim = |arguments: &[&str]| {
        let mut command = Command::new(TRIMTAB);
        command.arg("trim").args(arguments).arg(place).env("RUNTIME_DIRECTORY", runtime.path());
        command.output().unwrap()
    };
    let output = trim(&["--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(document(&output).targets[0].outcome, Outcome::Unsupported);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("takes no discards") && said.lines().count() == 1, "{said}");
    let quiet = trim(&["--quiet-unsupported"]);
    assert!(quiet.status.success() && quiet.stderr.is_empty());
    let line = format!("x {} ext4 defaults\n", place.display());
    assert_eq!(listed(&line, &[]), (Some(0), Vec::new()), "one of many is passed over");
    let list = runtime.path().join("list");
    fs::write(&list, line).unwrap();
    let named = Command::new(TRIMTAB).args(["trim", "-v", "-I"]).arg(&list).output().unwrap();
    let said = String::from_utf8(named.stderr).unwrap();
    assert!(named.status.success());
    assert!(said.starts_with(&format!("trimtab: passed over: {}", place.display())), "{said}");
}

#[test]
fn exit_codes_match_fstrim() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("ext4", Clock::Model);
    let trim = |paths: &[&str]| {
        let mut command = Command::new(TRIMTAB);
        command.arg("trim").args(paths).env("RUNTIME_DIRECTORY", testbed.dir.path());
        command.output().unwrap().status.code()
    };
    let place = testbed.place();
    let place = place.to_str().unwrap();
    assert_eq!(trim(&[place]), Some(0));
    assert_eq!(trim(&["/nonexistent"]), Some(1));
    assert_eq!(trim(&[place, "/nonexistent"]), Some(64));
    assert_eq!(trim(&["/nonexistent", "/proc"]), Some(32));
    assert_eq!(trim(&[]), Some(2), "nothing was named");
}

#[test]
fn discards_of_others_are_reported() {
    if !possible() {
        return;
    }
    let testbed = Testbed::new("ext4", Clock::Real { speed: 1.0 });
    testbed.fragment(300, 200 << 10);
    // The file system itself discards files that are deleted while a paced trim pauses.
    run(Command::new("mount").args(["-o", "remount,discard"]).arg(testbed.place()));
    let reader = testbed.drive.device().to_owned();
    let place = testbed.place();
    let trim = std::thread::scope(|scope| {
        let trim = scope.spawn(|| testbed.trim(&["-m", "0", "--max-busy", "20", "-l", "256M"]));
        for file in (1..300).step_by(2) {
            // Reads that keep the drive from being idle.
            let read = Command::new("dd")
                .args(["bs=4k", "count=1", "iflag=direct", "status=none"])
                .arg(format!("if={}", reader.display()))
                .arg(format!("skip={}", file * 100))
                .arg("of=/dev/null")
                .status();
            assert!(read.unwrap().success());
            let _ = fs::remove_file(place.join(file.to_string()));
            if file % 20 == 1 {
                let _ = trimtab_linux::trim::sync(&place);
            }
        }
        trim.join().unwrap()
    });
    assert!(sent(&trim).others_discards > 0, "{trim:?}");
}
