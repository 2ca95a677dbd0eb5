//! Devices over files that cannot be told from others: while there are such, other tests could be refused for them.

use std::fs;
use std::process::Command;

use trimtab_core::Bytes;
use trimtab_core::profile::Profile;
use trimtab_drive::Clock;

use crate::scene::{Scene, is_accepted, is_refused, shares};
use crate::support::{TRIMTAB, drive_in, possible_alone, run};

#[test]
fn images_seen_through_an_overlay_are_refused() {
    if !possible_alone() {
        return;
    }
    let mut scene = Scene::new();
    let disk = scene.image("disk", 300);
    let disk = scene.losetup(&[], &disk);
    let disk = scene.ext4(&disk, "disk-mnt");
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| scene.dir(&format!("disk-mnt/{name}")));
    scene.image("disk-mnt/lower/image", 40);
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let merged = scene.mount(&["-t", "overlay", "-o", &options, "overlay"], "merged");
    // Being opened for writing takes it to the upper directory.
    let mounted = scene.losetup(&[], format!("{merged}/image"));
    let real = format!("{disk}/upper/image");
    scene.ext4(&mounted, "mnt");
    let sibling = scene.losetup(&[], &real);
    is_refused(&sibling, &real, &[&shares(&mounted)]);

    // The paths of its directories may lead to other files by now.
    let moved = format!("{disk}/moved");
    fs::rename(&upper, &moved).unwrap();
    fs::create_dir(&upper).unwrap();
    scene.image("disk-mnt/upper/image", 40);
    is_refused(&sibling, &format!("{moved}/image"), &[&format!("may share its bytes with {mounted}")]);
    fs::remove_dir_all(&upper).unwrap();
    fs::rename(&moved, &upper).unwrap();

    // The other way round, and from elsewhere.
    let mut other = Scene::new();
    let image = scene.image("disk-mnt/upper/second", 40);
    let mounted = other.losetup(&[], &image);
    other.ext4(&mounted, "mnt");
    let sibling = other.losetup(&[], format!("{merged}/second"));
    is_refused(&sibling, &image, &[&shares(&mounted)]);
    let bound = other.mount(&["--bind", &merged], "bound");
    let sibling = other.losetup(&[], format!("{bound}/second"));
    is_refused(&sibling, &image, &[&shares(&mounted)]);

    // Where its directories are not found, it is refused whatever else is in use.
    let relative = scene.dir("relative");
    run("mount", &["-t", "tmpfs", "tmpfs", &relative]);
    scene.ends.push(("umount", relative.clone()));
    let made = "cd \"$1\" && mkdir l u w m && mount -t overlay -o lowerdir=l,upperdir=u,workdir=w o m";
    run("sh", &["-c", made, "sh", &relative]);
    scene.ends.push(("umount", format!("{relative}/m")));
    fs::File::create(format!("{relative}/m/third")).unwrap().set_len(40 << 20).unwrap();
    let sibling = other.losetup(&[], format!("{relative}/m/third"));
    is_refused(
        &sibling,
        &image,
        &["/third, the file below it, is on overlay, which may keep its bytes in another file"],
    );
}

#[test]
fn a_file_of_an_overlay_that_is_open_for_writing() {
    if !possible_alone() {
        return;
    }
    let mut scene = Scene::new();
    let place = scene.dir("place");
    scene.mount_at("tmpfs", &place);
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| scene.dir(&format!("place/{name}")));
    let image = scene.image("place/upper/image", 47);
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let merged = scene.mount(&["-t", "overlay", "-o", &options, "overlay"], "merged");
    // The path of its upper directory leads to no file any more.
    let moved = format!("{place}/moved");
    fs::rename(&upper, &moved).unwrap();
    let device = scene.losetup(&[], format!("{moved}/image"));
    scene.image("merged/other", 48);
    let mut writer = Scene::new();
    writer.shell(&["env"], &format!("exec 3<>{merged}/other"));
    is_accepted(&device);
    let process = writer.shell(&["env"], &format!("exec 3<>{merged}/image"));
    let written =
        format!("process {process} (sleep) has {merged}/image, which may be the same file, open for writing");
    is_refused(&device, &image.replace("upper", "moved"), &[&written]);
}

#[test]
fn a_loop_device_whose_node_leads_to_no_device_is_not_free() {
    if !possible_alone() {
        return;
    }
    let (mut scene, image, device) = Scene::with_loop();
    let sibling = scene.losetup(&[], scene.linked(&image, "link"));
    scene.ext4(&sibling, "mnt");
    let node = scene.path("node");
    run("mknod", &[&node, "b", "240", "7"]);
    run("mount", &["--bind", &node, &sibling]);
    scene.ends.push(("umount", sibling.clone()));
    is_refused(&device, &image, &[&format!("cannot tell which file is behind {sibling}")]);
}

#[test]
fn the_file_of_an_emulated_drive_that_is_open_for_writing() {
    if !possible_alone() {
        return;
    }
    let mut scene = Scene::new();
    let file = scene.path("data");
    let drive = drive_in(
        Profile::named("nvme-tlc").unwrap(),
        Bytes::GIB,
        Clock::Real { speed: 1.0 },
        Some(file.clone().into()),
    );
    let device = drive.device().to_str().unwrap().to_owned();
    let planned = Command::new(TRIMTAB).args(["bench", &device, "--dry-run"]).output().unwrap();
    assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
    let process = scene.shell(&["env"], &format!("exec 3<>{file}"));
    let written =
        format!("process {process} (sleep) has {file}, which may be the same file, open for writing");
    is_refused(&device, &file, &[&written]);
    scene.end();
}

#[test]
fn the_file_of_an_emulated_drive_seen_through_an_overlay() {
    if !possible_alone() {
        return;
    }
    let mut scene = Scene::new();
    let place = scene.dir("place");
    scene.mount_at("tmpfs", &place);
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| scene.dir(&format!("place/{name}")));
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let merged = scene.mount(&["-t", "overlay", "-o", &options, "overlay"], "merged");
    let drive_at = |file: String| {
        let profile = Profile::named("ocz-agility-3").unwrap();
        drive_in(profile, Bytes(256 << 20), Clock::Real { speed: 1.0 }, Some(file.into()))
    };
    // Its server has the file of the overlay, whose bytes are in the file below it.
    let through = drive_at(format!("{merged}/data"));
    let device = through.device().to_str().unwrap().to_owned();
    let stacked =
        format!("{merged}/data, the file below it, is on overlay, which may keep its bytes in another file");
    is_refused(&device, &format!("{upper}/data"), &[&stacked]);
    through.remove().unwrap();

    // Its server has the file itself; a process has it through the overlay.
    let plain = drive_at(format!("{upper}/plain"));
    let device = plain.device().to_str().unwrap().to_owned();
    is_accepted(&device);
    let mut writer = Scene::new();
    let process = writer.shell(&["env"], &format!("exec 3<>{merged}/plain"));
    let written =
        format!("process {process} (sleep) has {merged}/plain, which may be the same file, open for writing");
    is_refused(&device, &format!("{upper}/plain"), &[&written]);
    drop(writer);
    plain.remove().unwrap();
}
