//! The output on stacks.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use trimtab_core::document::DoctorDocument;
use trimtab_core::verdict::Verdict;
use trimtab_linux::mount;

use crate::common::possible;
use crate::mounts::{Loop, Mounted};
use crate::support::{DISK, OnLoop, TRIMTAB, doctor, layers, target};

#[test]
fn file_system_on_a_file_in_memory_reaches_the_bottom() {
    if !possible() {
        return;
    }
    let stack = OnLoop::new("tmpfs", "ext4", "");
    let mount = stack.upper.target.to_str().unwrap();
    let lower = stack.lower.target.to_str().unwrap();
    let expected = [("ext4", mount), ("loop", stack.device.name()), ("tmpfs", lower)];
    fs::write(stack.upper.target.join("file"), "x").unwrap();
    for path in [stack.upper.target.clone(), stack.upper.target.join("file")] {
        let found = target(&[], &path);
        assert_eq!((found.verdict, layers(&found)), (Verdict::Reaches, expected.to_vec()), "{found:#?}");
        assert_eq!((Path::new(&found.asked), found.target.as_str()), (path.as_path(), mount));
    }
    let dir = TempDir::new().unwrap();
    let link = dir.path().join("link");
    symlink(&stack.device.device, &link).unwrap();
    let device = stack.device.device.display();
    for (path, place) in [
        (stack.upper.target.join("file"), format!("{mount}/file is on {mount}: discards reach")),
        (stack.upper.target.join("."), format!("{mount}: discards reach")),
        (link.clone(), format!("{} is {device}: discards reach", link.display())),
    ] {
        let said = String::from_utf8(doctor(&[], &[&path]).stdout).unwrap();
        assert!(said.starts_with(&place), "{said}");
    }
    let device = target(&[], &stack.device.device);
    assert_eq!(
        (device.verdict, device.fs.clone(), layers(&device)),
        (Verdict::Reaches, None, expected[1..].to_vec())
    );

    // The values that lsblk prints for the same device.
    let lsblk = Command::new("lsblk")
        .args(["-bndo", "DISC-MAX,DISC-GRAN"])
        .arg(&stack.device.device)
        .output()
        .unwrap();
    let limits = device.layers[0].limits.unwrap();
    let words = String::from_utf8(lsblk.stdout).unwrap();
    let words: Vec<_> = words.split_whitespace().map(|word| word.parse::<u64>().unwrap()).collect();
    assert_eq!(words, [limits.max.0, limits.granularity.0]);
}

#[test]
fn nested_file_system_without_discard_stops_them() {
    if !possible() {
        return;
    }
    let lower = OnLoop::new("tmpfs", "ext4", "");
    let device = Loop::new(&lower.upper.target, DISK);
    let below = lower.upper.target.to_str().unwrap();
    let found = target(&[], &device.device);
    assert_eq!(found.verdict, Verdict::Partial, "{found:#?}");
    let finding = found.findings.iter().find(|finding| finding.id == "nested-file-system").unwrap();
    assert_eq!(finding.layer, below);

    // The printed fix works.
    let fix = finding.fix.clone().unwrap();
    assert!(Command::new("sh").args(["-c", &fix]).status().unwrap().success(), "{fix}");
    assert_eq!(target(&[], &device.device).verdict, Verdict::Reaches);
}

#[test]
fn overlays_and_bind_mounts_are_followed_down() {
    if !possible() {
        return;
    }
    let stack = OnLoop::new("tmpfs", "ext4", "");
    let base = &stack.upper.target;
    for name in ["lower", "upper", "work"] {
        fs::create_dir(base.join(name)).unwrap();
    }
    let dir = TempDir::new().unwrap();
    let at = |name: &str| base.join(name).display().to_string();
    let options = format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
    let overlay = Mounted::new(Path::new("overlay"), "overlay", &options);
    let found = target(&[], &overlay.target);
    assert_eq!(found.verdict, Verdict::Reaches, "{found:#?}");
    let kinds: Vec<_> = found.layers.iter().map(|layer| layer.kind.as_str()).collect();
    assert_eq!(kinds, ["overlay", "ext4", "loop", "tmpfs"]);

    let bound = dir.path().join("bound");
    fs::create_dir(&bound).unwrap();
    let made = Command::new("mount").arg("--bind").arg(base.join("upper")).arg(&bound).status().unwrap();
    assert!(made.success());
    let found = target(&[], &bound);
    mount::unmount(&bound).unwrap();
    assert_eq!((found.target.as_str(), found.verdict), (bound.to_str().unwrap(), Verdict::Reaches));
}

#[test]
fn every_mounted_file_system_is_examined_once() {
    if !possible() {
        return;
    }
    let stack = OnLoop::new("tmpfs", "xfs", "");
    let output = doctor(&["--all", "--json"], &[]);
    let document: DoctorDocument = serde_json::from_slice(&output.stdout).unwrap();
    let named =
        |path: &Path| document.targets.iter().filter(|target| Path::new(&target.target) == path).count();
    assert_eq!((named(&stack.upper.target), named(&stack.lower.target)), (1, 0));
    assert!(document.environment.is_some());
}

#[test]
fn capture_gives_the_same_output() {
    if !possible() {
        return;
    }
    let stack = OnLoop::new("tmpfs", "ext4", "discard");
    let dir = TempDir::new().unwrap();
    let archive = dir.path().join("capture.tar.gz");
    let here = doctor(&["--json", "--capture", archive.to_str().unwrap()], &[&stack.upper.target]);
    let here: DoctorDocument = serde_json::from_slice(&here.stdout).unwrap();
    let unpacked = dir.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let tar = Command::new("tar").arg("xzf").arg(&archive).arg("-C").arg(&unpacked).status().unwrap();
    assert!(tar.success());
    let of_capture = |root: &Path| {
        let output = doctor(&["--json", "--sysfs", root.to_str().unwrap()], &[]);
        serde_json::from_slice::<DoctorDocument>(&output.stdout).unwrap()
    };
    let there = of_capture(&unpacked);
    let summary = |document: &DoctorDocument| {
        let [target] = document.targets.as_slice() else { panic!("{document:#?}") };
        let kinds: Vec<_> =
            target.layers.iter().map(|layer| (layer.kind.clone(), layer.passes, layer.limits)).collect();
        let ids: Vec<_> = target.findings.iter().map(|finding| finding.id.clone()).collect();
        (target.verdict, kinds, ids)
    };
    assert_eq!(summary(&there), summary(&here));
    assert_eq!(summary(&of_capture(&unpacked.join("capture"))), summary(&here));
    assert!(there.environment.is_none());
}

#[test]
fn emulated_drive_takes_discards() {
    if !possible() {
        return;
    }
    let name = format!("doctor-{}", std::process::id());
    let drive = |arguments: &[&str]| {
        let output = Command::new(TRIMTAB).arg("drive").args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let device = drive(&["create", &name, "--profile", "nvme-tlc", "--size", "1G"]);
    let found = target(&[], Path::new(device.trim()));
    drive(&["rm", &name]);
    assert_eq!(found.verdict, Verdict::Reaches, "{found:#?}");
}
