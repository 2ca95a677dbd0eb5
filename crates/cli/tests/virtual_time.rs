//! Guests whose clock counts instructions: the same work takes the same time, whatever else runs here.

#[allow(dead_code, reason = "the kernel alone is fetched here")]
mod guest;
mod guest_work;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use guest_work::busy;
use trimtab_core::Bytes;
use trimtab_core::document::{CompareDocument, Engine};
use trimtab_core::interrupt::Interrupt;
use trimtab_guest::{
    GuestCommand, GuestError, GuestImage, GuestOptions, GuestOutput, GuestStatus, KernelChoice,
};
use trimtab_lab::fs::FileSystem;

/// An image with Debian's kernel 6.12, or `None` if this machine can't have it.
fn image() -> Option<GuestImage> {
    let found = guest::ran("vm/kernel", &[])?;
    let kernel = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
    let boot = std::fs::read_dir(kernel.join("boot")).unwrap().map(|entry| entry.unwrap().path());
    let vmlinuz = boot.into_iter().find(|path| path.to_string_lossy().contains("vmlinuz-")).unwrap();
    let options = GuestOptions {
        engine: Engine::Qemu,
        kernel: KernelChoice::File { image: vmlinuz, modules: None },
        program: env!("CARGO_BIN_EXE_trimtab").into(),
        modules: vec![FileSystem::Ext4.name().to_owned()],
        programs: FileSystem::Ext4.programs(false),
        tools: true,
        files: Vec::new(),
        data: Vec::new(),
        placed: Vec::new(),
    };
    let image = GuestImage::prepare(&options, &Interrupt::never()).unwrap();
    assert!(image.release().starts_with("6.12."), "{}", image.release());
    Some(image)
}

/// The memory of a guest.
const MEMORY: Bytes = Bytes(1 << 30);

fn command(script: &str) -> GuestCommand {
    guest_work::command(script, MEMORY)
}

const WORK: &str = "
now() { echo \"$1 $(date +%s.%N)\"; }
now start
device=$(trimtab drive create x --profile ocz-agility-3 --size 256M --clock real --preconditioned)
now created
mkfs.ext4 -q -F $device
mount $device /mnt
now mounted
for file in 1 2 3 4 5 6 7 8; do
    head -c 5M /dev/zero >/mnt/$file
    sync
    now $file
    echo file $file >&2
done
rm /mnt/[1357]
sync
now deleted
sleep 3600
now slept
fstrim /mnt
now trimmed
umount /mnt
trimtab drive stats x --json >stats
trimtab drive rm x
head -c 16 /dev/urandom | od -x
now end
exit 3
";

#[test]
fn same_work_takes_the_same_time_on_an_idle_and_a_busy_machine() {
    let Some(image) = image() else { return };
    let order = GuestCommand { files_back: vec!["stats".into(), "none".into()], ..command(WORK) };
    let run = || {
        let mut lines = Vec::new();
        let output = image.run(&order, &Interrupt::never(), &mut |line| lines.push(line.to_owned())).unwrap();
        (output, lines)
    };
    let (output, lines) = run();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status, GuestStatus::Exited(3), "{said}");
    assert!(lines.contains(&"file 8".to_owned()), "{lines:?}");
    let times = times(&output);
    assert_eq!(times.len(), 15);
    assert!(times.is_sorted_by(|earlier, later| earlier < later), "{times:?}");
    assert!((3600.0..3601.0).contains(&(times[12] - times[11])), "{times:?}");
    let stats: serde_json::Value = serde_json::from_slice(output.files[0].as_deref().unwrap()).unwrap();
    assert!(stats["counters"]["write_bytes"].as_u64().unwrap() > 40_000_000, "{stats}");
    assert!(stats["counters"]["discards"].as_u64().unwrap() > 0, "{stats}");
    assert_eq!(output.files[1], None);
    assert_eq!(busy(run), (output, lines));
}

#[test]
fn writers_at_once_take_the_same_time_on_an_idle_and_a_busy_machine() {
    let Some(image) = image() else { return };
    let compare = "trimtab compare --clock real --runs 1 --writers 4 --policy online --idle 1s --size 96M \
                   --profile ocz-agility-3 --json compare.json";
    let order = GuestCommand { files_back: vec!["compare.json".into()], ..command(compare) };
    let run = || {
        let mut output = image.run(&order, &Interrupt::never(), &mut |_| {}).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status, GuestStatus::Exited(0), "{said}");
        String::from_utf8(output.files.remove(0).unwrap()).unwrap()
    };
    let document = run();
    let compared: CompareDocument = serde_json::from_str(&document).unwrap();
    assert_eq!((compared.writers, compared.stopped), (4, None));
    let waited = compared.runs[0].writers_waited_s();
    assert!(waited.len() == 4 && waited.iter().all(|writer| *writer > 0.0), "{waited:?}");
    assert_eq!(busy(run), document);
}

/// The timer interrupts of the guest so far: those of the HPET, and those of the processor's own timer.
const INTERRUPTS: &str = "timers() { awk '/^ *0:|LOC:|hpet|timer/ { sum += $2 } END { print \"timers\", sum }' /proc/interrupts; }";

#[test]
fn idle_guest_is_woken_less_than_once_a_second() {
    let Some(image) = image() else { return };
    let compare = |idle| {
        format!(
            "trimtab compare --clock real --runs 1 --policy none --size 96M --profile ocz-agility-3 --probe 0s --idle {idle}"
        )
    };
    // A comparison takes samples of the drive, the more often the shorter it is.
    let script = format!(
        "{INTERRUPTS}\ntimers\nsleep 1000\ntimers\n{} >/dev/null\ntimers\n{} >/dev/null\ntimers\n",
        compare("1s"),
        compare("1day")
    );
    let output = image.run(&command(&script), &Interrupt::never(), &mut |_| {}).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let counts: Vec<u64> =
        text.lines().filter_map(|line| line.strip_prefix("timers ")?.parse().ok()).collect();
    let &[started, slept, short, long] = counts.as_slice() else { panic!("{text}{:?}", output.stderr) };
    assert!(slept > started && short > slept + 1000, "timer interrupts are not counted: {counts:?}");
    assert!(slept - started < 1000, "a guest that sleeps 1000 s: {counts:?}");
    let idle = (long - short).saturating_sub(short - slept);
    assert!(idle < 86_400, "{idle} timer interrupts in an idle day of a comparison: {counts:?}");
}

/// The times that the work printed, in seconds.
fn times(output: &GuestOutput) -> Vec<f64> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.split_once(' ')?.1.parse().ok()).filter(|time| *time > 1e9).collect()
}

/// The machines with this much memory, as QEMU was told, that run here.
fn machines(memory: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let commands = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let is_machine = |command: &Vec<u8>| {
        let words: Vec<_> = command.split(|byte| *byte == 0).collect();
        words[0].starts_with(b"qemu-system") && words.contains(&memory.as_bytes())
    };
    commands.filter(is_machine).count()
}

#[test]
fn guests_that_cannot_finish_are_ended_and_say_why() {
    let Some(image) = image() else { return };
    let run = |command: &GuestCommand, interrupt: &Interrupt| {
        let error = image.run(command, interrupt, &mut |_| {}).unwrap_err();
        (error.to_string(), error)
    };
    let never = Interrupt::never();

    let absent = GuestCommand { arguments: vec!["nonesuch".into()], ..command("") };
    let (said, error) = run(&absent, &never);
    assert!(matches!(error, GuestError::NotInGuest { file } if file == "nonesuch"));
    assert!(said.starts_with("the guest has no nonesuch; "), "{said}");
    assert_eq!(image.require("nonesuch").unwrap_err().to_string(), said);
    image.require("sh").unwrap();
    image.require("/usr/bin/sort").unwrap();

    let greedy = "head -c 600M /dev/zero | sort >/dev/null";
    let (said, error) = run(&GuestCommand { memory: Bytes(400 << 20), ..command(greedy) }, &never);
    assert!(matches!(error, GuestError::OutOfMemory { .. }), "{error:?}");
    assert!(said.starts_with("the guest ran out of its 400 MiB of memory; "), "{said}");
    let (_, error) = run(&GuestCommand { memory: Bytes(64 << 20), ..command("true") }, &never);
    assert!(matches!(error, GuestError::OutOfMemory { .. }), "{error:?}");

    let limit = Duration::from_secs(12);
    let (said, error) = run(&GuestCommand { limit, ..command("while :; do :; done") }, &never);
    let GuestError::Hung { console, .. } = error else { panic!("{error:?}") };
    assert!(said.starts_with("the guest did not finish within 12s and was stopped; "), "{said}");
    assert!(console.is_empty() || console.contains("trimtab-guest: running sh"), "{console}");

    let interrupt = Interrupt::default();
    let sleeper = GuestCommand { memory: Bytes(777 << 20), ..command("sleep infinity") };
    let asked = thread::scope(|scope| {
        let running = scope.spawn(|| run(&sleeper, &interrupt));
        while machines("777M") == 0 {
            thread::sleep(Duration::from_millis(5));
        }
        interrupt.ask();
        running.join().unwrap().1
    });
    assert!(matches!(asked, GuestError::Interrupted(_)), "{asked:?}");
    assert_eq!(machines("777M"), 0);
}
