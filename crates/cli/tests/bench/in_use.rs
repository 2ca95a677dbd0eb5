//! Devices that share their bytes with something in use: refused whatever is allowed, and nothing is written.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::profile::Profile;
use trimtab_drive::{Clock, CreateOptions, Drive, Room};
use trimtab_linux::loop_device;

use crate::scene::{EVERYTHING, Scene, is_refused, is_refused_beside_the_kernel, refuses, shares};
use crate::support::{TRIMTAB, attaching, bench, possible, results, run, turn};

#[test]
fn hard_links_to_the_image_of_a_mounted_file_system_are_refused() {
    if !possible() {
        return;
    }
    for offset in [&["-o", "1M"][..], &[]] {
        let mut scene = Scene::new();
        let image = scene.image("image", 80);
        let mounted = scene.losetup(offset, &image);
        scene.ext4(&mounted, "mnt");
        let link = scene.linked(&image, "link");
        let sibling = scene.losetup(&[], &link);
        is_refused(&sibling, &image, &[&shares(&mounted)]);
        let above = scene.losetup(&[], &sibling);
        is_refused(&above, &image, &[&shares(&mounted)]);
        fs::remove_file(&image).unwrap();
        is_refused(&above, &link, &[&shares(&mounted)]);
    }
}

#[test]
fn image_whose_name_is_not_text_is_refused() {
    if !possible() {
        return;
    }
    let mut scene = Scene::new();
    let image = scene.image("image", 40);
    let named = scene.directory.path().join(OsStr::from_bytes(b"image-\xff"));
    fs::hard_link(&image, &named).unwrap();
    let mounted = scene.losetup(&[], &named);
    scene.ext4(&mounted, "mnt");
    let sibling = scene.losetup(&[], &image);
    is_refused(&sibling, &image, &[&shares(&mounted)]);
}

#[test]
fn image_whose_path_is_too_long_for_the_kernel_is_refused() {
    if !possible() {
        return;
    }
    let _turn = turn();
    let mut scene = Scene::new();
    let top = scene.path("");
    let script = "import os, sys, time\n\
                  os.chdir(sys.argv[1])\n\
                  for _ in range(20): os.mkdir('d' * 250); os.chdir('d' * 250)\n\
                  open('image', 'wb').truncate(40 << 20)\n\
                  os.link('image', sys.argv[1] + '/link')\n";
    let process = scene.python(script, &[&top]);
    let deep = {
        let _attaching = attaching();
        loop_device::attach(Path::new(&format!("/proc/{process}/cwd/image")), Bytes(512)).unwrap()
    };
    let deep = deep.to_str().unwrap().to_owned();
    scene.ends.push(("losetup -d", deep.clone()));
    let link = scene.path("link");
    let other = scene.losetup(&[], &link);
    let target = scene.ext4(&deep, "mnt");
    is_refused(&other, &link, &[&shares(&deep)]);
    run("umount", &[&target]);
    run("mount", &[&other, &target]);
    is_refused(&deep, &link, &[&shares(&other)]);
}

#[test]
fn mounts_outside_a_chroot_are_found() {
    if !possible() {
        return;
    }
    let mut scene = Scene::new();
    let image = scene.image("image", 40);
    let link = scene.linked(&image, "link");
    let mounted = scene.losetup(&[], &image);
    let target = scene.ext4(&mounted, "mnt");
    let sibling = scene.losetup(&[], &link);
    let root = scene.mount(&["--bind", "/"], "root");
    let program = Path::new(TRIMTAB).parent().unwrap().to_str().unwrap();
    for place in ["/proc", "/sys", "/dev", "/tmp", program] {
        let inside = format!("{root}{place}");
        run("mount", &["--bind", place, &inside]);
        scene.ends.push(("umount", inside));
    }
    let mut bench = Command::new("chroot");
    bench.args([&root, TRIMTAB, "bench", &sibling, "--destroy-data", &sibling]).args(EVERYTHING);
    let elsewhere = format!("is mounted on {target} in the mount namespace of process ");
    refuses(&mut bench, &image, &[&format!("shares its bytes with {mounted}, which "), &elsewhere]);
}

#[test]
fn bind_mount_that_leads_to_the_image_is_found() {
    if !possible() {
        return;
    }
    let mut scene = Scene::new();
    let images = scene.dir("images");
    let image = scene.image("images/image", 40);
    let mounted = scene.losetup(&[], &image);
    scene.ext4(&mounted, "mnt");
    let bound = scene.mount(&["--bind", &images], "bound");
    let sibling = scene.losetup(&[], format!("{bound}/image"));
    is_refused(&sibling, &image, &[&shares(&mounted)]);
}

#[test]
fn nodes_outside_dev_are_found() {
    if !possible() {
        return;
    }
    let (mut scene, image, lower) = Scene::with_loop();
    let node = scene.node(&lower, "node");
    let upper = scene.losetup(&[], &node);
    scene.ext4(&lower, "mnt");
    is_refused(&upper, &image, &[&shares(&lower)]);
    is_refused(&node, &image, &[&format!("{lower} is mounted on ")]);

    let (mut scene, image, lower) = Scene::with_loop();
    let node = scene.node(&lower, "node");
    let upper = scene.losetup(&[], &node);
    is_refused(&lower, &image, &[&format!("is held by {upper}; take that down first")]);
    fs::remove_file(&node).unwrap();
    scene.ext4(&upper, "mnt");
    is_refused(&lower, &image, &[&format!("is below {upper}, which is mounted on ")]);
}

#[test]
fn active_swap_is_refused() {
    if !possible() {
        return;
    }
    let mut scene = Scene::new();
    let image = scene.image("image", 40);
    let link = scene.linked(&image, "link");
    let swap = scene.losetup(&[], &image);
    scene.swap(&swap);
    let sibling = scene.losetup(&[], &link);
    is_refused_beside_the_kernel(
        &sibling,
        &[&format!("shares its bytes with {swap}, which is active swap; ")],
    );

    let mut scene = Scene::new();
    let disk = scene.image("disk", 80);
    let disk = scene.losetup(&[], &disk);
    let disk = scene.ext4(&disk, "disk-mnt");
    let file = format!("{disk}/swap");
    fs::write(&file, vec![0; 20 << 20]).unwrap();
    run("chmod", &["600", &file]);
    let link = scene.linked(&file, "disk-mnt/link");
    scene.swap(&file);
    let over = scene.losetup(&[], &link);
    is_refused_beside_the_kernel(&over, &[&format!("shares its bytes with {file}, which is active swap; ")]);
}

#[test]
fn mounts_in_other_namespaces_are_found() {
    if !possible() {
        return;
    }
    let _turn = turn();
    let mut scene = Scene::new();
    let image = scene.image("image", 40);
    let link = scene.linked(&image, "link");
    let mounted = scene.losetup(&[], &image);
    run("mkfs.ext4", &["-q", &mounted]);
    let target = scene.dir("target");
    let process = scene.shell(&["unshare", "--mount"], &format!("mount -o ro {mounted} {target}"));
    let sibling = scene.losetup(&[], &link);
    let elsewhere = format!("is mounted on {target} in the mount namespace of process {process}; ");
    is_refused(&sibling, &image, &[&format!("shares its bytes with {mounted}"), &elsewhere]);
    is_refused(&mounted, &image, &[&elsewhere]);
}

#[test]
fn namespace_without_processes_is_found() {
    if !possible() {
        return;
    }
    let _turn = turn();
    let mut scene = Scene::new();
    let image = scene.image("image", 40);
    let link = scene.linked(&image, "link");
    let mounted = scene.losetup(&[], &image);
    run("mkfs.ext4", &["-q", &mounted]);
    let target = scene.dir("target");
    let kept = scene.dir("kept");
    run("mount", &["--bind", &kept, &kept]);
    scene.ends.push(("umount", kept.clone()));
    run("mount", &["--make-private", &kept]);
    let namespace = scene.path("kept/namespace");
    fs::write(&namespace, "").unwrap();
    scene.ends.push(("umount", namespace.clone()));
    run("unshare", &[&format!("--mount={namespace}"), "mount", "-o", "ro", &mounted, &target]);
    let sibling = scene.losetup(&[], &link);
    let keeps = format!("shares its bytes with {mounted}, which the kernel keeps for another user");
    is_refused(&sibling, &image, &[&keeps]);
    is_refused(&mounted, &image, &["the kernel keeps it for another user"]);
}

#[test]
fn journals_logs_and_second_devices_are_refused() {
    if !possible() {
        return;
    }
    for kind in ["ext4", "xfs", "btrfs"] {
        let mut scene = Scene::new();
        let [first, second] = ["first", "second"].map(|name| scene.image(name, 400));
        let link = scene.linked(&second, "link");
        let [first, used] = [&first, &second].map(|image| scene.losetup(&[], image));
        let mut options = "ro".to_owned();
        match kind {
            "ext4" => {
                run("mkfs.ext4", &["-q", "-b", "4096", "-O", "journal_dev", &used]);
                run("mkfs.ext4", &["-q", "-b", "4096", "-J", &format!("device={used}"), &first]);
            }
            "xfs" => {
                run("mkfs.xfs", &["-q", "-l", &format!("logdev={used},size=64m"), &first]);
                options = format!("ro,norecovery,logdev={used}");
            }
            _ => run("mkfs.btrfs", &["-q", "-d", "single", &first, &used]),
        }
        scene.mount(&["-t", kind, "-o", &options, &first], "mnt");
        let sibling = scene.losetup(&[], &link);
        is_refused(&sibling, &second, &[&format!("shares its bytes with {used}, which ")]);
        is_refused(&used, &second, &["is in use"]);
    }
}

#[test]
fn data_of_an_emulated_drive_is_refused() {
    if !possible() {
        return;
    }
    let mut scene = Scene::new();
    let data = PathBuf::from(scene.path("data"));
    let attaching = attaching();
    let drive = Drive::create(&CreateOptions {
        name: format!("bench-in-use-{}", std::process::id()),
        profile: Profile::named("nvme-tlc").unwrap(),
        size: Bytes::GIB,
        preconditioned: false,
        clock: Clock::Real { speed: 1.0 },
        data: Some(data.clone()),
        server: PathBuf::from(TRIMTAB),
        owned: true,
        room: Room::default(),
    })
    .unwrap();
    drop(attaching);
    let data = data.to_str().unwrap();
    let over = scene.losetup(&[], data);
    is_refused(&over, data, &["(trimtab) has ", " open for writing"]);
    // Nothing uses the loop device, so that the drive itself may be measured.
    results(drive.device(), &["--part", "latency", "--sizes", "4K", "--time", "1s"]);
    // By the drive: ranges that bench discarded are removed from the data file later.
    let device = drive.device().to_str().unwrap();
    run("mkfs.ext4", &["-q", "-F", device]);
    scene.mount(&["-o", "ro", &over], "mnt");
    // Reading the drive's figures waits until all discarded ranges are removed.
    drive.stats().unwrap();
    is_refused(device, data, &[&format!("{device} may share its bytes with {over}, which is mounted on ")]);
}

#[test]
fn partitions_without_a_user_can_be_given_up() {
    if !possible() {
        return;
    }
    let mut scene = Scene::new();
    let image = scene.image("image", 64);
    let device = scene.losetup(&["--partscan"], &image);
    run("addpart", &[&device, "1", "2048", "90000"]);
    let options = ["--overwrite-partitions", "--dry-run"];
    let output = bench(Path::new(&device), &options).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(&format!("will be lost on {device}: partition {device}p1")), "{said}");
    scene.ext4(&format!("{device}p1"), "mnt");
    is_refused(&device, &image, &[&format!("{device}p1 is mounted on ")]);
}

#[test]
fn unused_siblings_are_kept_unused() {
    if !possible() {
        return;
    }
    let mut scene = Scene::new();
    let image = scene.image("image", 64);
    let [one, other] = [(); 2].map(|()| scene.losetup(&[], &image));
    let target = scene.dir("mnt");
    let mut child = bench(Path::new(&one), &["--quick", "--time", "20s", "--json"])
        .arg(scene.path("out.json"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It writes as soon as it has the device.
    while fs::metadata(&image).unwrap().blocks() == 0 && child.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    let has_begun = child.try_wait().unwrap().is_none();
    let mounted = Command::new("mount").args(["-t", "ext4", &other, &target]).output().unwrap();
    let reason = String::from_utf8_lossy(&mounted.stderr).into_owned();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(has_begun, "it ended too soon");
    assert!(!mounted.status.success() && reason.contains("busy"), "{reason}");
}
