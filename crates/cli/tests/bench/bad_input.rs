//! Bad input is refused, in one line each, before anything is written.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::profile::Profile;
use trimtab_drive::Clock;

use crate::scene::Scene;
use crate::support::{Loop, TRIMTAB, bench, drive, possible, refusal, results, run, turn};

const SIZE: Bytes = Bytes(64 << 20);

/// Asserts that a bench of `device` is refused with exit status 1, saying all of `words`, and that
/// it wrote nothing to `file`.
fn is_refused(device: &Path, file: &Path, arguments: &[&str], words: &[&str]) {
    let before = fs::read(file).unwrap();
    says_why(device, arguments, words);
    assert!(fs::read(file).unwrap() == before, "something was written");
}

/// Asserts that a bench of `device` is refused with exit status 1, saying all of `words`.
fn says_why(device: &Path, arguments: &[&str], words: &[&str]) {
    let (status, reason) = refusal(&bench(device, arguments).output().unwrap());
    assert_eq!(status, Some(1), "{reason}");
    for word in words {
        assert!(reason.contains(word), "{reason:?} doesn't say {word:?}");
    }
}

#[test]
fn path_that_is_no_block_device_is_refused() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "precious").unwrap();
    is_refused(&file, &file, &[], &["regular file", "file"]);
    is_refused(dir.path(), &file, &[], &["directory"]);
    is_refused(Path::new("/dev/null"), &file, &[], &["character device"]);
    is_refused(&dir.path().join("none"), &file, &[], &["No such file"]);
}

#[test]
fn device_has_to_be_named_twice() {
    let usage = Command::new(TRIMTAB).args(["bench", "/dev/null"]).output().unwrap();
    let (status, reason) = refusal(&usage);
    assert_eq!(status, Some(2));
    assert!(reason.contains("--destroy-data"), "{reason}");
    let other =
        Command::new(TRIMTAB).args(["bench", "/dev/null", "--destroy-data=/dev/zero"]).output().unwrap();
    assert!(refusal(&other).1.contains("--destroy-data names /dev/zero"));
}

#[test]
fn results_of_an_earlier_run_are_kept() {
    if !possible() {
        return;
    }
    let _turn = turn();
    let Loop { device, file, .. } = &Loop::new(SIZE);
    let dir = TempDir::new().unwrap();
    let json = dir.path().join("bench.json");
    fs::write(&json, "precious").unwrap();
    let (json, report) = (json.to_str().unwrap(), dir.path().to_str().unwrap());
    for place in [["--json", json], ["--report", report]] {
        is_refused(device, file, &place, &[json, "exists; --overwrite-results"]);
        assert_eq!(fs::read(json).unwrap(), b"precious");
    }
    let replaced = ["--json", json, "--overwrite-results", "--quick", "--part", "verify", "--time", "1s"];
    assert!(bench(device, &replaced).output().unwrap().status.success());
    assert_ne!(fs::read(json).unwrap(), b"precious");
    let resume = format!("exists; --resume {json} goes on with it, --overwrite-results");
    is_refused(device, file, &["--json", json], &[&resume]);
    is_refused(device, file, &["--json", json, "--quick"], &["exists; --overwrite-results"]);
}

#[test]
fn drive_on_the_models_clock_has_no_times_to_measure() {
    if !possible() {
        return;
    }
    let drive = drive(Profile::named("nvme-tlc").unwrap(), Bytes::GIB, Clock::Model);
    for option in [["--quick", "--dry-run"], ["--part", "latency"]] {
        let (status, reason) = refusal(&bench(drive.device(), &option).output().unwrap());
        assert_eq!(status, Some(1));
        assert!(reason.contains("create it with --clock real, or measure --part verify alone"), "{reason}");
    }
    assert_eq!(drive.stats().unwrap().counters.writes, 0);
}

#[test]
fn device_in_use_or_with_contents_is_refused() {
    if !possible() {
        return;
    }
    let _turn = turn();
    let Loop { device, file, .. } = &Loop::new(SIZE);
    let path = device.to_str().unwrap();
    run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-L", "precious", path]);
    is_refused(device, file, &[], &["ext4", "precious", "--overwrite-signatures"]);

    let mount = TempDir::new().unwrap();
    let target = mount.path().to_str().unwrap();
    run("mount", &[path, target]);
    let refused = std::panic::catch_unwind(|| {
        is_refused(device, file, &[], &["mounted on", target]);
        is_refused(device, file, &["--overwrite-signatures", "--overwrite-partitions"], &["mounted on"]);
    });
    run("umount", &[target]);
    refused.unwrap();

    run("mkswap", &[path]);
    // The kernel writes to active swap, but for its header.
    let header = || fs::read(file).unwrap()[..4096].to_owned();
    let before = header();
    run("swapon", &[path]);
    let refused = std::panic::catch_unwind(|| says_why(device, &["--overwrite-signatures"], &["swap"]));
    run("swapoff", &[path]);
    refused.unwrap();
    assert!(header() == before, "something was written");

    run("wipefs", &["-a", path]);
    run("blockdev", &["--setro", path]);
    let refused = std::panic::catch_unwind(|| is_refused(device, file, &[], &["read-only"]));
    run("blockdev", &["--setrw", path]);
    refused.unwrap();

    // An MBR with one partition, as fdisk writes it.
    let mut table = vec![0; 512];
    table[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0]);
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    std::os::unix::fs::FileExt::write_all_at(
        &fs::OpenOptions::new().write(true).open(file).unwrap(),
        &table,
        0,
    )
    .unwrap();
    is_refused(device, file, &[], &["partition table", "--overwrite-"]);
}

#[test]
fn options_that_do_not_fit_the_device_are_refused() {
    if !possible() {
        return;
    }
    let Loop { device, file, .. } = &Loop::new(SIZE);
    is_refused(device, file, &["--sizes", "2G.."], &["2 GiB", "--sizes"]);
    is_refused(device, file, &["--range", "0..1G"], &["reaches past the end"]);
    is_refused(device, file, &["--range", "100..1M"], &["multiple of 512 B"]);
    is_refused(device, file, &["--sizes", "4000,512"], &["multiple of 512 B"]);
    is_refused(device, file, &["--resume", "/no/such/file"], &["/no/such/file"]);
}

#[test]
fn links_of_other_users_in_a_shared_directory_are_not_followed() {
    if !possible() {
        return;
    }
    let Loop { device, file, .. } = &Loop::new(SIZE);
    let (dir, shared) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let (dear, link, run) = (dir.path().join("dear"), shared.path().join("link"), shared.path().join("run"));
    fs::write(&dear, "dear").unwrap();
    symlink(&dear, &link).unwrap();
    symlink(dir.path(), &run).unwrap();
    for link in [&link, &run] {
        lchown(link, Some(65534), Some(65534)).unwrap();
    }
    let json = dir.path().join("bench.json");
    let json = ["--quick", "--json", json.to_str().unwrap()];
    for (option, path) in
        [("--json", &link), ("--profile-out", &link), ("--report", &run), ("--across-power-cycle", &link)]
    {
        let path = path.to_str().unwrap();
        let arguments = if option == "--profile-out" {
            [&json[..], &[option, path]].concat()
        } else {
            vec![option, path]
        };
        if option == "--across-power-cycle" {
            fs::remove_file(&dear).unwrap();
        }
        is_refused(device, file, &arguments, &["belongs to user 65534"]);
        assert_eq!(fs::read(&dear).ok(), (option != "--across-power-cycle").then(|| b"dear".to_vec()));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn a_device_without_discards_is_unsupported() {
    if !possible() {
        return;
    }
    // ramfs punches no holes, so a loop device over a file on it has no discards.
    let mount = TempDir::new().unwrap();
    run("mount", &["-t", "ramfs", "ramfs", mount.path().to_str().unwrap()]);
    let file = mount.path().join("file");
    fs::File::create(&file).unwrap().set_len(SIZE.0).unwrap();
    let shown = Command::new("losetup").args(["--show", "-f"]).arg(&file).output().unwrap();
    let device = String::from_utf8(shown.stdout).unwrap();
    let refused =
        std::panic::catch_unwind(|| refusal(&bench(Path::new(device.trim()), &[]).output().unwrap()));
    run("losetup", &["-d", device.trim()]);
    run("umount", &[mount.path().to_str().unwrap()]);
    let (status, reason) = refused.unwrap();
    assert_eq!(status, Some(3));
    assert!(reason.contains("discard_max_hw_bytes is 0"), "{reason}");
}

#[test]
fn dry_run_writes_nothing_and_prints_the_plan() {
    if !possible() {
        return;
    }
    let Loop { device, file, .. } = &Loop::new(SIZE);
    let before = fs::metadata(file).unwrap().modified().unwrap();
    let output = Command::new(TRIMTAB)
        .arg("bench")
        .arg(device)
        .args(["--allow-part", "--dry-run", "--sizes", "4M.."])
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for word in [
        "64 MiB",
        "sequential, random, discarded, unwritten, unaligned",
        "14 sizes",
        "15m",
        "A drive that writes less than ",
    ] {
        assert!(text.contains(word), "{text:?} doesn't say {word:?}");
    }
    assert!(
        text.contains(
            "what doesn't fit is left out and named.\n             The order of latency is: discards"
        )
    );
    assert_eq!(fs::metadata(file).unwrap().modified().unwrap(), before);
}

#[test]
fn dry_run_names_every_reason_to_refuse() {
    if !possible() {
        return;
    }
    let _turn = turn();
    let mut scene = Scene::new();
    let image = scene.image("image", SIZE.0 >> 20);
    let device = scene.losetup(&[], image);
    run("mkfs.ext4", &["-q", &device]);
    let (json, profile) = (scene.path("old.json"), scene.path("profile.toml"));
    fs::write(&json, "precious").unwrap();
    let dry = |options: &[&str]| {
        let mut command = Command::new(TRIMTAB);
        command.args(["bench", &device, "--dry-run", "--json", &json]).args(options);
        let output = command.output().unwrap();
        assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let is_said = |said: &[String], words: &[&str]| {
        assert_eq!(said.len(), words.len(), "{said:?}");
        for (line, word) in said.iter().zip(words) {
            assert!(line.starts_with("trimtab: ") && line.contains(word), "{line}");
        }
    };
    let with_profile = ["--sizes", "4K,512", "--profile-out", &profile];
    let needs = ["add --allow-part", "holds ext4", "old.json exists", "a profile needs the latency"];
    is_said(&dry(&with_profile), &needs);
    let said = dry(&["--allow-part", "--sizes", "4000,512"]);
    is_said(&said, &["holds ext4", "old.json exists", "multiple of 512 B"]);
    // In use, it is refused for each use, and for what is to be given up when they have ended.
    let used = ["one", "other"].map(|name| format!("is mounted on {}; ", scene.mount(&[&device], name)));
    let said = dry(&with_profile);
    is_said(&said, &[&[&*used[0], &*used[1]][..], &needs].concat());
    assert!(fs::read(&json).unwrap() == b"precious" && !Path::new(&profile).exists());
}

#[test]
fn results_of_another_device_are_not_resumed() {
    if !possible() {
        return;
    }
    let (one, other) = (Loop::new(SIZE), Loop::new(Bytes(32 << 20)));
    let dir = TempDir::new().unwrap();
    let json = dir.path().join("one.json");
    let (document, _) = results(&one.device, &["--part", "latency", "--sizes", "4K", "--time", "1s"]);
    fs::write(&json, serde_json::to_vec(&document).unwrap()).unwrap();
    is_refused(
        &other.device,
        &other.file,
        &["--resume", json.to_str().unwrap()],
        &["another device", "64 MiB"],
    );
}
