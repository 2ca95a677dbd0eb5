//! Guests in User Mode Linux: the same work takes the same time, whatever else runs here, whoever runs it.

mod guest_work;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use guest_work::busy;
use trimtab_core::Bytes;
use trimtab_core::document::{Clock, CompareDocument, Engine, ProcessorCosts, Run};
use trimtab_core::interrupt::Interrupt;
use trimtab_guest::{GuestCommand, GuestError, GuestImage, GuestOptions, GuestStatus, KernelChoice};
use trimtab_lab::fs::FileSystem;

const TRIMTAB: &str = env!("CARGO_BIN_EXE_trimtab");
/// A user without rights.
const NOBODY: u32 = 65534;

/// Returns an image. Prints why this machine can't have one, and returns none then.
fn image(file_systems: &[FileSystem], processor: ProcessorCosts) -> Option<GuestImage> {
    let options = GuestOptions {
        engine: Engine::Uml { processor },
        kernel: KernelChoice::default(),
        program: TRIMTAB.into(),
        modules: file_systems.iter().map(|file_system| file_system.name().to_owned()).collect(),
        programs: file_systems.iter().flat_map(|file_system| file_system.programs(false)).collect(),
        tools: true,
        files: Vec::new(),
        data: Vec::new(),
        placed: Vec::new(),
    };
    match GuestImage::prepare(&options, &Interrupt::never()) {
        Ok(image) => Some(image),
        Err(error) => {
            assert!(
                std::env::var_os("CI").is_none(),
                "a test of User Mode Linux cannot be skipped in CI: {error}"
            );
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// The memory of a guest.
const MEMORY: Bytes = Bytes(1200 << 20);

fn command(script: &str) -> GuestCommand {
    guest_work::command(script, MEMORY)
}

/// The document of a comparison of one run in a guest, as text.
fn compared(image: &GuestImage, options: &str) -> String {
    let script = format!("trimtab compare --clock real --runs 1 --json compare.json {options}");
    let order = GuestCommand { files_back: vec!["compare.json".into()], ..command(&script) };
    let mut output = image.run(&order, &Interrupt::never(), &mut |_| {}).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status, GuestStatus::Exited(0), "{said}");
    String::from_utf8(output.files.remove(0).unwrap()).unwrap()
}

#[test]
fn every_file_system_and_the_service_repeat_on_a_busy_machine() {
    for file_system in [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs, FileSystem::F2fs] {
        let Some(image) = image(&[file_system], ProcessorCosts::default()) else { return };
        let options = format!("--fs {} --policy smart --idle 30s --size 320M", file_system.name());
        let document = compared(&image, &options);
        let read: CompareDocument = serde_json::from_str(&document).unwrap();
        let run = &read.runs[0];
        assert!(run.verified && read.stopped.is_none(), "{document}");
        assert!(run.steps.iter().map(|step| step.discards).sum::<u64>() > 0, "{document}");
        assert_eq!(busy(|| compared(&image, &options)), document, "{}", file_system.name());
    }
}

#[test]
fn file_system_of_every_policy_has_discards() {
    let Some(image) = image(&[FileSystem::Btrfs, FileSystem::Ext4], ProcessorCosts::default()) else {
        return;
    };
    for options in ["--fs btrfs --policy async", "--fs ext4 --policy online", "--fs ext4 --policy batched"] {
        let document = compared(&image, &format!("{options} --idle 30s --size 256M"));
        let read: CompareDocument = serde_json::from_str(&document).unwrap();
        let discards: u64 = read.runs[0].steps.iter().map(|step| step.discards).sum();
        assert!(discards > 0, "{options}: {document}");
    }
}

#[test]
fn kernels_work_takes_the_time_that_it_is_given() {
    let script = "before=$(date +%s%N); dd if=/dev/zero of=/dev/null bs=1k count=1000 2>/dev/null
        after=$(date +%s%N); echo $((after - before))";
    let time = |processor: &str| {
        let image = image(&[], processor.parse().unwrap())?;
        let output = image.run(&command(script), &Interrupt::never(), &mut |_| {}).unwrap();
        Some(String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap())
    };
    let Some(free) = time("none") else { return };
    // 2000 reads and writes, and some calls of a shell.
    let calls = time("syscall=10000,fault=0,request=0,switch=0,data=0,copy=0,cache=0").unwrap();
    assert!((20_000_000..30_000_000).contains(&(calls - free)), "{free} {calls}");
    // The reads alone move bytes to a process: /dev/null takes none.
    let copies = time("syscall=0,fault=0,request=0,switch=0,data=0,copy=10000,cache=0").unwrap();
    assert!(copies > free, "{free} {copies}");
}

#[test]
fn program_that_spins_is_named() {
    let Some(image) = image(&[], ProcessorCosts::default()) else { return };
    let spins = GuestCommand { limit: Duration::from_secs(40), ..command("while :; do :; done") };
    let error = image.run(&spins, &Interrupt::never(), &mut |_| {}).unwrap_err();
    let GuestError::Spins { process } = &error else { panic!("{error:?}") };
    assert!(process.starts_with("sh ("), "{process}");
    assert!(error.to_string().ends_with("; use --engine qemu for this workload"), "{error}");
}

/// The processes that were started in a directory of a guest.
fn processes_below(room: &Path) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|dir| dir.starts_with(room)))
        .count()
}

#[test]
fn interrupt_ends_every_process_of_a_guest() {
    let room = tempfile::tempdir().unwrap();
    let Some(_) = image(&[], ProcessorCosts::default()) else { return };
    let mut compare = Command::new(TRIMTAB);
    compare.args(["compare", "--engine", "uml", "--policy", "none", "--idle", "0s", "--size", "256M"]);
    let mut running = compare.env("TMPDIR", room.path()).spawn().unwrap();
    while processes_below(room.path()) < 3 {
        thread::sleep(Duration::from_millis(5));
        assert!(running.try_wait().unwrap().is_none(), "the comparison ended before it was interrupted");
    }
    // No chance to clean up: the kernel and its processes still end with their parent.
    running.kill().unwrap();
    running.wait().unwrap();
    while processes_below(room.path()) > 0 {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs `trimtab compare`, as root or as nobody.
fn compare(user: u32, options: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(TRIMTAB);
    command.arg("compare").args(options).envs(variables.iter().copied()).current_dir("/");
    if user != 0 {
        command.uid(user).gid(user);
    }
    command.output().unwrap()
}

/// The runs of a comparison that was written to a file.
fn document(path: &Path) -> CompareDocument {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn another_user_has_the_same_results_in_another_directory() {
    let Some(_) = image(&[FileSystem::Ext4], ProcessorCosts::default()) else { return };
    let compare_as = |user: u32, name: &str| {
        let room = tempfile::Builder::new().prefix(name).tempdir().unwrap();
        std::os::unix::fs::chown(room.path(), Some(user), Some(user)).unwrap();
        // The program is where another user may not look.
        let (json, dir) = (room.path().join("compare.json"), room.path().to_str().unwrap().to_owned());
        let options = ["--engine", "uml", "--policy", "smart", "--idle", "30s", "--size", "256M", "--json"];
        let options = [&options[..], &[json.to_str().unwrap()]].concat();
        let output =
            compare(user, &options, &[("TMPDIR", &dir), ("XDG_CACHE_HOME", "/var/cache"), ("HOME", &dir)]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        document(&json)
    };
    let mine = compare_as(0, "trimtab-uml-");
    assert!(
        matches!(&mine.clock, Clock::Virtual { engine: Engine::Uml { processor }, kernel }
            if *processor == ProcessorCosts::default() && kernel.ends_with("-trimtab")),
        "{:?}",
        mine.clock
    );
    let theirs = compare_as(NOBODY, "trimtab-uml-of-a-user-with-a-longer-name-");
    assert_eq!((&theirs.runs, &theirs.clock), (&mine.runs, &mine.clock));
}

#[test]
fn guests_run_in_qemu_where_user_mode_linux_cannot_be_built() {
    let room = tempfile::tempdir().unwrap();
    // The kernel of QEMU's guests is there, and no directory can be made beside it.
    let cache = room.path().join("trimtab");
    fs::create_dir(&cache).unwrap();
    std::os::unix::fs::symlink("/var/cache/trimtab/debian-6.12", cache.join("debian-6.12")).unwrap();
    let bin = room.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for program in ["qemu-system-x86_64", "mkfs.ext4"] {
        let found = ["/usr/bin", "/usr/sbin", "/sbin", "/bin"].map(|dir| Path::new(dir).join(program));
        let found = found.iter().find(|path| path.exists()).unwrap();
        std::os::unix::fs::symlink(found, bin.join(program)).unwrap();
    }
    let json = room.path().join("compare.json");
    let options = ["--engine", "uml", "--policy", "none", "--idle", "0s", "--size", "64M", "--json"];
    let options = [&options[..], &[json.to_str().unwrap()]].concat();
    let variables = [("XDG_CACHE_HOME", room.path().to_str().unwrap()), ("PATH", bin.to_str().unwrap())];
    let output = compare(0, &options, &variables);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let line = "User Mode Linux does not run here: building User Mode Linux needs cc; install it (apt-get install \
                build-essential); the guests run in QEMU instead";
    assert!(said.lines().any(|said| said == line), "{said}");
    assert!(matches!(document(&json).clock, Clock::Virtual { engine: Engine::Qemu, .. }));
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    for (options, said) in [
        (&["--processor", "none"][..], "--processor is for User Mode Linux; add --engine uml"),
        (&["--engine", "uml", "--clock", "real"], "--engine is for virtual time; leave out --clock real"),
        (&["--engine", "uml", "--processor", "fast"], "\"fast\" is not a processor; use none, default, or "),
        (
            &["--engine", "uml", "--kernel", "debian:6.1"],
            "'--engine <ENGINE>' cannot be used with '--kernel <KERNEL>'",
        ),
    ] {
        let output = compare(0, options, &[]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(said), "{options:?}: {stderr}");
    }
}

/// Seconds waited, erases and write amplification of a run.
fn figures(run: &Run) -> (f64, f64, f64) {
    let sum = |of: &dyn Fn(&trimtab_core::document::Step) -> f64| run.steps.iter().map(of).sum::<f64>();
    let waited = run.steps.iter().filter(|step| !step.name.contains("pause"));
    let waited = waited.filter(|step| step.idle_s == 0.0).map(|step| step.length_s).sum();
    let written = sum(&|step| step.host_pages.unwrap_or(0) as f64);
    let programmed = sum(&|step| step.programmed_pages.unwrap_or(0) as f64);
    (waited, sum(&|step| step.erases.unwrap_or(0) as f64), programmed / written)
}

/// Runs a comparison in a kind of guest, and returns its document.
fn compared_in(engine: &str, options: &[&str]) -> CompareDocument {
    let room = tempfile::tempdir().unwrap();
    let json = room.path().join("compare.json");
    let options = [options, &["--engine", engine, "--json", json.to_str().unwrap()]].concat();
    let output = compare(0, &options, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document = document(&json);
    let Clock::Virtual { engine: ran, .. } = &document.clock else { panic!("{:?}", document.clock) };
    assert_eq!(matches!(ran, Engine::Uml { .. }), engine == "uml", "{ran:?}");
    document
}

/// Whether a figure is within this share of the expected one.
fn close(expected: f64, found: f64, within: f64) -> bool {
    (found / expected - 1.0).abs() <= within
}

#[test]
fn results_agree_with_those_of_qemu() {
    let Some(_) = image(&[FileSystem::Ext4], ProcessorCosts::default()) else { return };
    let [qemu, uml] =
        ["qemu", "uml"].map(|engine| compared_in(engine, &["--policy", "none,smart", "--idle", "0s"]).runs);
    let rows = first_screen();
    for (qemu, uml) in qemu.iter().zip(&uml) {
        let (expected, found) = (figures(qemu), figures(uml));
        assert!(close(expected.1, found.1, 0.01), "erases {expected:?} {found:?}");
        assert!(close(expected.2, found.2, 0.01), "WAF {expected:?} {found:?}");
        assert!(close(expected.0, found.0, 0.15), "waited {expected:?} {found:?}");
        is_row_of_first_screen(&rows, qemu, 0.05);
    }
}

/// The text of README.md.
fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    fs::read_to_string(path).unwrap()
}

/// A row of README's tables.
#[derive(Debug)]
struct Row {
    idle_s: f64,
    policy: String,
    /// Seconds waited, erases and write amplification.
    figures: (f64, f64, f64),
}

/// The rows of README's comparison.
fn first_screen() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut idle_s = 0.0;
    for line in readme().lines() {
        match line.trim() {
            "ext4 without a pause" => idle_s = 0.0,
            "ext4 with a pause of 1 min" => idle_s = 60.0,
            _ => {}
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["none" | "online" | "batched" | "smart", waited, versus, ..] = words[..] else { continue };
        if versus.ends_with('×') {
            // From the end: erases, WAF, discards, and two of stale data.
            let figure = |from_end: usize| words[words.len() - from_end].parse().unwrap();
            let figures = (waited.parse().unwrap(), figure(5), figure(4));
            rows.push(Row { idle_s, policy: words[0].to_owned(), figures });
        }
    }
    assert_eq!(rows.len(), 8, "{rows:?}");
    rows
}

/// Holds a run to its row. Waits differ by up to 4.5 % from one build to another, and by up to 2.5 % from QEMU, whose rows they
/// are, to User Mode Linux.
fn is_row_of_first_screen(rows: &[Row], run: &Run, within: f64) {
    let is_of = |row: &&Row| row.policy == run.policy.to_string() && row.idle_s == run.idle_s;
    let row =
        rows.iter().find(is_of).unwrap_or_else(|| panic!("README has no {} {}", run.policy, run.idle_s));
    let found = figures(run);
    assert!(close(row.figures.0, found.0, within), "waited: {row:?} {found:?}");
    assert!(close(row.figures.1, found.1, 0.02), "erases: {row:?} {found:?}");
    assert!(close(row.figures.2, found.2, 0.02), "WAF: {row:?} {found:?}");
}

/// The numbers of README's text from these words on.
fn numbers_after(words: &str) -> impl Iterator<Item = f64> {
    let text = readme().split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, rest) = text.split_once(words).unwrap_or_else(|| panic!("README does not say {words:?}"));
    let numbers: Vec<f64> = rest
        .split(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .filter_map(|word| word.trim_matches('.').parse().ok())
        .take(8)
        .collect();
    numbers.into_iter()
}

#[test]
fn figures_of_the_first_screen_are_those_of_this_build() {
    let Some(_) = image(&[FileSystem::Ext4], ProcessorCosts::default()) else { return };
    let rows = first_screen();
    let compared = compared_in("uml", &[]);
    assert_eq!(compared.runs.len(), rows.len());
    compared.runs.iter().for_each(|run| is_row_of_first_screen(&rows, run, 0.075));

    let runs = compared_in("uml", &["--size", "2G", "--idle", "0s"]).runs;
    let found: Vec<_> = runs.iter().map(figures).collect();
    let mut said = numbers_after("With 2 GiB (`--size 2G --idle 0s`), the waits are");
    let waits: Vec<f64> = said.by_ref().take(3).collect();
    for (found, said) in found.iter().zip([waits[0], waits[1], waits[2], waits[2]]) {
        assert!(close(said, found.0, 0.075), "waited with 2 GiB: {said} {found:?}");
    }
    let fewer = 100.0 * (1.0 - found[3].1 / found[0].1);
    let said = said.next().unwrap();
    assert!((said - fewer).abs() <= 2.0, "smart erases {said} % fewer blocks with 2 GiB: {fewer}");

    let options = ["--writers", "8", "--idle", "0s", "--policy", "none,smart"];
    // Requests of several writers meet in another order than in User Mode Linux.
    let runs = compared_in("qemu", &options).runs;
    let (none, smart) = (figures(&runs[0]), figures(&runs[1]));
    let mut said = numbers_after("with eight writers (`--writers 8 --idle 0s`), you wait");
    for (what, none, smart) in [("wait", none.0, smart.0), ("erases", none.1, smart.1)] {
        let (said, found) = (said.next().unwrap(), 100.0 * (1.0 - smart / none));
        assert!((said - found).abs() <= 3.0, "{what} with eight writers: {said} % less, {found}");
    }
}
