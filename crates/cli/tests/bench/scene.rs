//! Devices and images as tests of refusals set them up, and the answer of a bench.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{TRIMTAB, attaching, bench, refusal, run};

pub const EVERYTHING: [&str; 2] = ["--overwrite-signatures", "--overwrite-partitions"];

/// A directory with what tests set up around an image in it; the last is taken down first.
pub struct Scene {
    pub ends: Vec<(&'static str, String)>,
    pub children: Vec<Child>,
    pub directory: TempDir,
}

impl Scene {
    pub fn new() -> Self {
        Self { ends: Vec::new(), children: Vec::new(), directory: TempDir::new().unwrap() }
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// A new directory.
    pub fn dir(&self, name: &str) -> String {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        path
    }

    /// A scene with a sparse file and a loop device over it.
    pub fn with_loop() -> (Self, String, String) {
        let mut scene = Self::new();
        let image = scene.image("image", 40);
        let device = scene.losetup(&[], &image);
        (scene, image, device)
    }

    /// A sparse file.
    pub fn image(&self, name: &str, mebibytes: u64) -> String {
        let path = self.path(name);
        fs::File::create(&path).unwrap().set_len(mebibytes << 20).unwrap();
        path
    }

    /// Another name of a file.
    pub fn linked(&self, image: &str, name: &str) -> String {
        fs::hard_link(image, self.path(name)).unwrap();
        self.path(name)
    }

    /// A node of a device's number, outside `/dev`.
    pub fn node(&self, device: &str, name: &str) -> String {
        let path = self.path(name);
        let number =
            fs::read_to_string(format!("/sys/class/block/{}/dev", &device["/dev/".len()..])).unwrap();
        let (major, minor) = number.trim().split_once(':').unwrap();
        run("mknod", &[&path, "b", major, minor]);
        path
    }

    pub fn losetup(&mut self, arguments: &[&str], file: impl AsRef<OsStr>) -> String {
        let _attaching = attaching();
        let output =
            Command::new("losetup").args(["-f", "--show"]).args(arguments).arg(file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        self.ends.push(("losetup -d", device.clone()));
        device
    }

    pub fn mount(&mut self, arguments: &[&str], name: &str) -> String {
        let target = self.dir(name);
        run("mount", &[arguments, &[&target]].concat());
        self.ends.push(("umount", target.clone()));
        target
    }

    /// A new file system of the kernel's own at the directory `target`.
    pub fn mount_at(&mut self, fstype: &str, target: &str) {
        run("mount", &["-t", fstype, fstype, target]);
        self.ends.push(("umount", target.to_owned()));
    }

    /// An ext4 on `device`, mounted.
    pub fn ext4(&mut self, device: &str, name: &str) -> String {
        run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device]);
        self.mount(&[device], name)
    }

    pub fn swap(&mut self, on: &str) {
        run("mkswap", &[on]);
        run("swapon", &[on]);
        self.ends.push(("swapoff", on.to_owned()));
    }

    /// Starts a Python program that says a word and then waits until the test ends.
    pub fn python(&mut self, script: &str, arguments: &[&str]) -> u32 {
        let mut command = Command::new("python3");
        self.start(
            command
                .args(["-c", &format!("{script}print('ready', flush=True)\ntime.sleep(1000000)\n")])
                .args(arguments),
        )
    }

    /// Starts a shell that runs `script`, says so by a word, and then waits until the test ends.
    pub fn shell(&mut self, program: &[&str], script: &str) -> u32 {
        let script = format!("{script}\necho ready; exec sleep infinity");
        let mut command = Command::new(program[0]);
        self.start(command.args(&program[1..]).args(["sh", "-ec", &script]))
    }

    /// Starts a program, which says when it is ready, and returns its process.
    pub fn start(&mut self, command: &mut Command) -> u32 {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut word = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut word).unwrap();
        let process = child.id();
        self.children.push(child);
        assert_eq!(word, "ready\n");
        process
    }

    /// Ends the program that was started last.
    pub fn end(&mut self) {
        let mut child = self.children.pop().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
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

/// Asserts that a bench of `device` may begin.
pub fn is_accepted(device: &str) {
    let output = Command::new(TRIMTAB).args(["bench", device, "--dry-run", "--allow-part"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Asserts that a bench of `device` is refused in one line that has all of `words`, and changes nothing of
/// `image`.
pub fn is_refused(device: &str, image: &str, words: &[&str]) {
    refuses(&mut bench(Path::new(device), &EVERYTHING), image, words);
}

/// Asserts as [`is_refused`] does of this bench.
pub fn refuses(bench: &mut Command, image: &str, words: &[&str]) {
    run("sync", &[]);
    let before = fs::read(image).unwrap();
    gives_a_reason(bench, words);
    assert!(fs::read(image).unwrap() == before, "something was written");
}

/// Asserts that a bench of `device`, to which the kernel may write at any time, is refused in one line that
/// has all of `words`.
pub fn is_refused_beside_the_kernel(device: &str, words: &[&str]) {
    gives_a_reason(&mut bench(Path::new(device), &EVERYTHING), words);
}

fn gives_a_reason(bench: &mut Command, words: &[&str]) {
    // If the device were accepted, the results would be in the current directory.
    let directory = TempDir::new().unwrap();
    let output = bench.arg("--quick").current_dir(&directory).output().unwrap();
    let (status, reason) = refusal(&output);
    assert_eq!(status, Some(1), "{reason}");
    for word in words {
        assert!(reason.contains(word), "{reason:?} doesn't say {word:?}");
    }
    assert!(fs::read_dir(&directory).unwrap().next().is_none(), "it has begun");
}

pub fn shares(device: &str) -> String {
    format!("shares its bytes with {device}, which is mounted on ")
}
