//! Devices that share their bytes with something in use: refused whatever is allowed, and nothing is written.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::profile::Profile;
use trimtab_drive::{Clock, CreateOptions, Drive};

use crate::support::{TRIMTAB, bench, possible, refusal, results, run};

const EVERYTHING: [&str; 3] = ["--overwrite-signatures", "--overwrite-partitions", "--allow-partition"];

/// A directory with what tests set up around an image in it; the last is taken down first.
struct Scene {
    ends: Vec<(&'static str, String)>,
    children: Vec<Child>,
    directory: TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { ends: Vec::new(), children: Vec::new(), directory: TempDir::new().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// A new directory.
    fn dir(&self, name: &str) -> String {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        path
    }

    /// A scene with a sparse file and a loop device over it.
    fn with_loop() -> (Self, String, String) {
        let mut scene = Self::new();
        let image = scene.image("image", 40);
        let device = scene.losetup(&[], &image);
        (scene, image, device)
    }

    /// A sparse file.
    fn image(&self, name: &str, mebibytes: u64) -> String {
        let path = self.path(name);
        fs::File::create(&path).unwrap().set_len(mebibytes << 20).unwrap();
        path
    }

    /// Another name of a file.
    fn linked(&self, image: &str, name: &str) -> String {
        fs::hard_link(image, self.path(name)).unwrap();
        self.path(name)
    }

    /// A node of a device's number, outside `/dev`.
    fn node(&self, device: &str, name: &str) -> String {
        let path = self.path(name);
        let number =
            fs::read_to_string(format!("/sys/class/block/{}/dev", &device["/dev/".len()..])).unwrap();
        let (major, minor) = number.trim().split_once(':').unwrap();
        run("mknod", &[&path, "b", major, minor]);
        path
    }

    fn losetup(&mut self, arguments: &[&str], file: impl AsRef<OsStr>) -> String {
        let output =
            Command::new("losetup").args(["-f", "--show"]).args(arguments).arg(file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        self.ends.push(("losetup -d", device.clone()));
        device
    }

    fn mount(&mut self, arguments: &[&str], name: &str) -> String {
        let target = self.dir(name);
        run("mount", &[arguments, &[&target]].concat());
        self.ends.push(("umount", target.clone()));
        target
    }

    /// An ext4 on `device`, mounted.
    fn ext4(&mut self, device: &str, name: &str) -> String {
        run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device]);
        self.mount(&[device], name)
    }

    fn swap(&mut self, on: &str) {
        run("mkswap", &[on]);
        run("swapon", &[on]);
        self.ends.push(("swapoff", on.to_owned()));
    }

    /// Starts a shell that runs `script`, says so by a word, and then waits until the test ends.
    fn shell(&mut self, program: &[&str], script: &str) -> u32 {
        let script = format!("{script}\necho ready; exec sleep infinity");
        let mut command = Command::new(program[0]);
        let mut child =
            command.args(&program[1..]).args(["sh", "-ec", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut word = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut word).unwrap();
        let process = child.id();
        self.children.push(child);
        assert_eq!(word, "ready\n");
        process
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for (end, what) in self.ends.iter().rev() {
            let (program, option) = end.split_once(' ').unwrap_or((end, ""));
            let options = option.split_whitespace();
            let _ = Command::new(program).args(options).arg(what).status();
        }
    }
}

/// Asserts that a bench of `device` is refused in one line that has all of `words`, and changes nothing of
/// `image`.
fn is_refused(device: &str, image: &str, words: &[&str]) {
    run("sync", &[]);
    let before = fs::read(image).unwrap();
    // One that were accepted would leave its results where it runs.
    let directory = TempDir::new().unwrap();
    let output =
        bench(Path::new(device), &EVERYTHING).arg("--quick").current_dir(&directory).output().unwrap();
    let (status, reason) = refusal(&output);
    assert_eq!(status, Some(1), "{reason}");
    for word in words {
        assert!(reason.contains(word), "{reason:?} doesn't say {word:?}");
    }
    assert!(fs::read(image).unwrap() == before, "something was written");
}

fn shares(device: &str) -> String {
    format!("shares its bytes with {device}, which is mounted on ")
}

#[test]
fn hard_links_to_the_image_of_a_mounted_file_system() {
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
fn an_image_whose_name_is_not_text() {
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
fn a_bind_mount_that_leads_to_the_image() {
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
fn images_seen_through_an_overlay() {
    if !possible() {
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

    // Where its directories aren't found, it may be any file.
    let relative = scene.dir("relative");
    run("mount", &["-t", "tmpfs", "tmpfs", &relative]);
    scene.ends.push(("umount", relative.clone()));
    let made = "cd \"$1\" && mkdir l u w m && mount -t overlay -o lowerdir=l,upperdir=u,workdir=w o m";
    run("sh", &["-c", made, "sh", &relative]);
    scene.ends.push(("umount", format!("{relative}/m")));
    fs::File::create(format!("{relative}/m/third")).unwrap().set_len(40 << 20).unwrap();
    let sibling = other.losetup(&[], format!("{relative}/m/third"));
    is_refused(&sibling, &image, &["may share its bytes with "]);
}

#[test]
fn nodes_outside_dev() {
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
fn active_swap() {
    if !possible() {
        return;
    }
    let mut scene = Scene::new();
    let image = scene.image("image", 40);
    let link = scene.linked(&image, "link");
    let swap = scene.losetup(&[], &image);
    scene.swap(&swap);
    let sibling = scene.losetup(&[], &link);
    is_refused(&sibling, &image, &[&format!("shares its bytes with {swap}, which is active swap; ")]);

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
    is_refused(&over, &file, &[&format!("shares its bytes with {file}, which is active swap; ")]);
}

#[test]
fn mounts_in_other_namespaces() {
    if !possible() {
        return;
    }
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
fn a_namespace_without_processes() {
    if !possible() {
        return;
    }
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
fn journals_logs_and_second_devices() {
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
fn what_another_process_can_write_to() {
    if !possible() {
        return;
    }
    let (scene, image, device) = Scene::with_loop();
    let node = scene.node(&device, "node");
    let link = scene.linked(&image, "link");
    for (redirection, path, named) in [("<>", &node, &node), (">>", &device, &device), ("<>", &link, &link)] {
        let mut scene = Scene::new();
        let process = scene.shell(&["env"], &format!("exec 3{redirection}{path}"));
        let name = if named == &link { named } else { &device };
        let written =
            format!("process {process} (sleep) has {name} open for writing; end that process first");
        is_refused(&device, &image, &[&format!("{device} is in use: {written}")]);
        let above = scene.losetup(&[], &node);
        is_refused(&above, &image, &[&format!("{above} is in use: {written}")]);
    }
    let mut reader = Scene::new();
    reader.shell(&["env"], &format!("exec 3<{device} 4<{link}"));
    let dry_run = Command::new(TRIMTAB).arg("bench").arg(&device).arg("--dry-run").output().unwrap();
    assert!(dry_run.status.success(), "{}", String::from_utf8_lossy(&dry_run.stderr));
}

#[test]
fn what_another_process_has_mapped() {
    if !possible() {
        return;
    }
    let (mut scene, image, device) = Scene::with_loop();
    let script = "import mmap, os, sys, time\n\
                  file = os.open(sys.argv[1], os.O_RDWR)\n\
                  kept = mmap.mmap(file, 4096)\n\
                  os.close(file)\n\
                  print('ready', flush=True)\n\
                  time.sleep(1000000)\n";
    for path in [&device, &image] {
        let mut child =
            Command::new("python3").args(["-c", script, path]).stdout(Stdio::piped()).spawn().unwrap();
        let mut word = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut word).unwrap();
        let process = child.id();
        scene.children.push(child);
        assert_eq!(word, "ready\n");
        is_refused(&device, &image, &[&format!("process {process} (python3) has {path} open for writing")]);
        let mut child = scene.children.pop().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_process_whose_main_thread_has_ended() {
    if !possible() {
        return;
    }
    let (mut scene, image, device) = Scene::with_loop();
    // `exit` ends the thread that calls it, and no other.
    let script = "import ctypes, os, sys, threading, time\n\
                  file = os.open(sys.argv[1], os.O_RDWR)\n\
                  def wait():\n\
                  \x20while open('/proc/self/stat').read().rsplit(')')[-1].split()[0] != 'Z': time.sleep(0.01)\n\
                  \x20print('ready', flush=True)\n\
                  \x20time.sleep(1000000)\n\
                  threading.Thread(target=wait).start()\n\
                  ctypes.CDLL(None).syscall({'x86_64': 60}.get(os.uname().machine, 93), 0)\n";
    let mut child =
        Command::new("python3").args(["-c", script, &device]).stdout(Stdio::piped()).spawn().unwrap();
    let mut word = String::new();
    let output = child.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut word).unwrap();
    let process = child.id();
    scene.children.push(child);
    assert_eq!(word, "ready\n");
    is_refused(&device, &image, &[&format!("process {process} (python3) has {device} open for writing")]);
}

#[test]
fn the_data_of_an_emulated_drive() {
    if !possible() {
        return;
    }
    let mut scene = Scene::new();
    let data = PathBuf::from(scene.path("data"));
    let drive = Drive::create(&CreateOptions {
        name: format!("bench-in-use-{}", std::process::id()),
        profile: Profile::named("nvme-tlc").unwrap(),
        size: Bytes::GIB,
        preconditioned: false,
        clock: Clock::Model,
        data: Some(data.clone()),
        server: PathBuf::from(TRIMTAB),
        owned: true,
    })
    .unwrap();
    let data = data.to_str().unwrap();
    let over = scene.losetup(&[], data);
    is_refused(&over, data, &["(trimtab) has ", " open for writing"]);
    // Nothing uses the loop device, so that the drive itself may be measured.
    results(drive.device(), &["--part", "latency", "--sizes", "4K", "--time", "1s"]);
    // By way of the drive: what bench discarded there leaves the data file later.
    let device = drive.device().to_str().unwrap();
    run("mkfs.ext4", &["-q", "-F", device]);
    // What is discarded leaves the data file late; these figures wait for that.
    drive.stats().unwrap();
    scene.mount(&["-o", "ro", &over], "mnt");
    is_refused(device, data, &[&format!("{device} may share its bytes with {over}, which is mounted on ")]);
}

#[test]
fn siblings_that_nothing_uses_are_kept_unused() {
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
