//! One run: a workload on a testbed under a policy, measured and verified.

use std::iter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::{Run, START, Timeline};
use trimtab_core::policy::{PolicyChoice, PolicyKind};
use trimtab_drive::DriveFigures;

use crate::error::{LabError, io_at};
use crate::progress::Progress;
use crate::stage::clock::DriveClock;
use crate::stage::policy_host::PolicyHost;
use crate::stage::probe::Probe;
use crate::stage::service::{Service, ServiceOptions};
use crate::stage::timeline::Sampler;
use crate::stage::trimmer::{Schedule, Trimmer};
use crate::stage::{Ended, Stage};
use crate::testbed::Testbed;
use crate::work::Work;
use crate::workload::Workload;
use trimtab_core::interrupt::Interrupt;

/// How many files are written before the first step, to be read by the probe and to be there,
/// unchanged, at the end.
const LIVE_FILES: u32 = 4;
/// The size of each: small, because it lowers the drive's spare.
const LIVE_SIZE: Bytes = Bytes(256 << 10);
/// A pause before the first step, in drive time. Gives every policy time for its initial work, so that none
/// still has it to do in the first step. The service, for example, trims all free space when it starts.
const LEAD: Duration = Duration::from_secs(10);
/// How long every run is observed after its last step, in drive time.
const TAIL: Duration = Duration::from_secs(1);

/// The options of one run.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions<'a> {
    /// The policy.
    pub policy: PolicyChoice,
    /// The length of the workload's pauses, in drive time.
    pub idle: Duration,
    /// The number of the repetition, from 1.
    pub run: u32,
    /// Drive seconds per second of this machine's clock.
    pub speed: f64,
    /// Drive time from one read of the probe to the next; none for no probe.
    pub probe_interval: Option<Duration>,
    /// The profile that the service is given, as TOML; without one it chooses.
    pub smart_profile: Option<&'a str>,
    /// Whether the kernel may merge adjacent requests to the emulated drive.
    pub merges: bool,
    /// The executable that serves drives and runs the service: trimtab itself.
    pub program: &'a Path,
}

/// Runs `workload` on `testbed` and verifies its data.
///
/// # Errors
/// Whatever stops the workload, the policy or the probe; [`LabError::Damaged`] or
/// [`LabError::Unreadable`] if live data doesn't read back.
pub fn run(
    workload: &dyn Workload,
    options: RunOptions,
    testbed: &mut dyn Testbed,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<Run, LabError> {
    let description = workload.description();
    let (dir, room) = (testbed.dir().to_owned(), testbed.room());
    let mut work = Work::new(dir, room, description.seed, interrupt.clone());
    progress.step("prepare");
    let live = if workload.unmounts() { None } else { Some(write_live_files(&mut work)?) };
    // The service starts before the clock: on a user's machine it runs since boot.
    let service = start_service(options, testbed, interrupt)?;
    let clock = DriveClock::start(options.speed);
    let policy = service.unwrap_or_else(|| policy_host(options, workload.names_its_pauses(), testbed, clock));
    let sampler = testbed.block().map(|block| Sampler::start(block.clone(), clock));
    let start_probe = |(live, interval)| Probe::start(live, LIVE_SIZE.0 / 4096, interval, clock);
    let probe = live.zip(options.probe_interval).map(start_probe).transpose()?;
    let is_probed = probe.is_some();

    let mut stage = Stage::new(testbed, work, policy, clock, options.idle, progress)?;
    let outcome =
        stage.pause_for(START, LEAD).and_then(|()| workload.run(&mut stage)).and_then(|()| stage.tail(TAIL));
    let mut ended = stage.end();
    // The threads end before an error is returned.
    let until = outcome.is_ok().then(|| clock.now());
    let samples = probe.map_or(Ok(Vec::new()), |probe| probe.finish(until));
    let probed = samples.as_deref().unwrap_or_default();
    let timeline = sampler.map_or(Ok(Timeline::default()), |sampler| sampler.finish(probed));
    // The file system has reported an error of its drive, or has failed in its own way after that.
    if outcome.is_err()
        && !interrupt.is_set()
        && let Ok(Some(DriveFigures { lacked_room: true, .. })) = testbed.drive()
    {
        return Err(LabError::DriveLacksRoom);
    }
    outcome?;
    let samples = samples?;
    let reads = is_probed.then(|| ended.reads(&samples));
    let steps = ended.steps(&samples);
    let pending = ended.policy.pending()?;
    let stale = stale(testbed)?;
    let Ended { work, writers, policy, stderr, .. } = ended;
    let trims = policy.finish()?;
    progress.step("verify");
    verify(iter::once(work).chain(writers).collect(), testbed)?;
    Ok(Run {
        fs: testbed.file_system().to_owned(),
        policy: options.policy,
        workload: description.name,
        idle_s: options.idle.as_secs_f64(),
        run: options.run,
        steps,
        reads,
        trims,
        timeline: timeline?,
        stale,
        pending,
        stderr,
        verified: true,
    })
}

/// Writes the files that stay, and returns the path of one for the probe.
fn write_live_files(work: &mut Work) -> Result<PathBuf, LabError> {
    let dir = PathBuf::from("live");
    work.make_dir(&dir)?;
    for file in 0..LIVE_FILES {
        work.write(&dir.join(file.to_string()), LIVE_SIZE)?;
    }
    work.sync()?;
    Ok(work.dir().join(dir).join("0"))
}

fn start_service(
    options: RunOptions,
    testbed: &dyn Testbed,
    interrupt: &Interrupt,
) -> Result<Option<PolicyHost>, LabError> {
    if options.policy.kind() != PolicyKind::Smart {
        return Ok(None);
    }
    let service = ServiceOptions {
        program: options.program,
        mount: testbed.mount_point(),
        device: &testbed.source(),
        profile: options.smart_profile,
        speed: options.speed,
    };
    Ok(Some(PolicyHost::Service(Box::new(Service::start(&service, interrupt)?))))
}

/// The host of every policy but `smart`.
fn policy_host(
    options: RunOptions,
    names_its_pauses: bool,
    testbed: &dyn Testbed,
    clock: DriveClock,
) -> PolicyHost {
    if options.policy.kind() != PolicyKind::Batched {
        return PolicyHost::FileSystem;
    }
    let schedule = match (options.policy.interval(), testbed.block()) {
        (Some(interval), _) => Schedule::Every(interval),
        (None, Some(device)) if !names_its_pauses => Schedule::Quiet(device.clone()),
        (None, _) => Schedule::Pauses,
    };
    PolicyHost::Trimmer(Trimmer::start(testbed.mount_point().to_owned(), schedule, clock))
}

/// Bytes that an emulated drive holds and its file system no longer uses; none without such a drive.
fn stale(testbed: &mut dyn Testbed) -> Result<Option<Bytes>, LabError> {
    let Some(drive) = testbed.drive()? else { return Ok(None) };
    let mount = testbed.mount_point();
    let stat = rustix::fs::statvfs(mount).map_err(|errno| io_at(mount, "look at")(errno.into()))?;
    let free = Bytes(stat.f_bfree * stat.f_frsize);
    let used = drive.size.saturating_sub(free);
    Ok(Some(drive.mapped.saturating_sub(used)))
}

/// Reads all live files back: after a remount if that is possible, else past the page cache.
fn verify(mut works: Vec<Work>, testbed: &mut dyn Testbed) -> Result<(), LabError> {
    works.first().map_or(Ok(()), Work::sync)?;
    testbed.remount()?;
    works.iter_mut().try_for_each(Work::verify)
}
