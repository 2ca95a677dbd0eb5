//! `trimtab pause` and `trimtab resume`.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use trimtab_keeper::pause::{Pause, Pauses, in_seconds, resumption};
use trimtab_keeper::service::control::{Control, ControlError, RUN};
use trimtab_keeper::trim::{RunningTrims, mount_from};
use trimtab_linux::PROCFS;
use trimtab_linux::mount::{covering, mounts};

/// How long a trim that is told to end may take: as long as the discards that its drive is busy with.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How often it is asked whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Ends the trims of a file system, or of all, and starts none for a time
///
/// Returns when no trim is under way any more. Holds for the service and for trimtab trim; it does not hold for
/// discards that a file system sends by itself. For what needs a file system that is not busy, or a drive that does not change:
/// before umount, fsfreeze, a snapshot or an image. Needs root.
#[derive(clap::Args)]
pub struct Args {
    /// The mount point, or its device [default: all file systems]
    mount: Option<PathBuf>,
    /// How long, such as 90s or 2h; after that, trims begin again by themselves. A pause that ends later stays
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = length)]
    length: Duration,
    /// The directory of the service's sockets
    #[arg(long, value_name = "DIRECTORY", default_value = RUN, hide = true)]
    run: PathBuf,
}

/// Ends a pause, so that the service may trim again
#[derive(clap::Args)]
pub struct ResumeArgs {
    /// The mount point that was paused [default: the pause of all file systems]
    mount: Option<PathBuf>,
    /// The directory of the service's sockets
    #[arg(long, value_name = "DIRECTORY", default_value = RUN, hide = true)]
    run: PathBuf,
}

pub fn run(args: Args) -> Result<ExitCode> {
    println!("{}", pause(&args.run, args.mount.as_deref(), args.length)?);
    Ok(ExitCode::SUCCESS)
}

fn length(text: &str) -> Result<Duration> {
    let length = humantime::parse_duration(text)?;
    ensure!(!length.is_zero(), "that pauses nothing; trimtab resume ends a pause");
    Ok(length)
}

/// Pauses the trims of the file system at `mount`, or of all, and waits until none is under way. Returns a sentence that says for
/// how long, and which command ends the pause.
pub fn pause(run: &Path, mount: Option<&Path>, length: Duration) -> Result<String> {
    let mounts = mount.map(mount_points).transpose()?;
    let of_it = mounts.as_deref().unwrap_or_default();
    Pauses::of(run).set(of_it, length).context("cannot pause; run this as root")?;
    let begun = Instant::now();
    let mut running = RunningTrims::of(run);
    let is_over = loop {
        if running.end(mounts.as_deref()) + tell_service(run)? == 0 {
            break false;
        }
        thread::sleep(POLL_INTERVAL);
        // From then on, the service trims again.
        if begun.elapsed() >= length {
            break true;
        }
        if begun.elapsed() > TIMEOUT {
            bail!(
                "paused, but a trim has been under way for {} s: its drive is slow or hangs, or the file system is \
                 frozen and busy until its thaw (fsfreeze --unfreeze); try again",
                TIMEOUT.as_secs()
            );
        }
    };
    let left = Pause::left(&Pauses::of(run).read(), of_it);
    // Trims that run after its end are not counted.
    if is_over || left.is_zero() {
        bail!(
            "the pause of {} was over before the last trim had ended; pause for longer",
            humantime::format_duration(length)
        );
    }
    let named = of_it.first().map(PathBuf::as_path);
    Ok(format!(
        "{}: no trim is under way, and none starts for {}; {} ends that",
        named.map_or("all file systems".into(), Path::to_string_lossy),
        in_seconds(left),
        resumption(named)
    ))
}

pub fn resume(args: ResumeArgs) -> Result<ExitCode> {
    // A file system that was unmounted meanwhile is named by its path.
    let named = |name: &Path| mount_points(name).or_else(|_| canonical(name).map(|path| vec![path]));
    let mounts = args.mount.as_deref().map(named).transpose()?.unwrap_or_default();
    let was_paused = Pauses::of(&args.run).end(&mounts).context("cannot resume; run this as root")?;
    tell_service(&args.run)?;
    if !was_paused {
        let name = mounts.first().map_or("all file systems".to_owned(), |mount| mount.display().to_string());
        let others = Pauses::of(&args.run).read();
        let others: Vec<_> = others.iter().map(Pause::resumption).collect();
        let hint = if others.is_empty() {
            String::new()
        } else {
            format!("; to end another: {}", others.join(", "))
        };
        bail!("there is no pause of {name}{hint}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails if the trims of the file system with these mount points are paused.
pub fn check(run: &Path, mounts: &[PathBuf]) -> Result<()> {
    if let Some(pause) = Pause::longest(&Pauses::of(run).read(), mounts) {
        bail!("trims are paused for another {}; {} ends that", in_seconds(pause.rest()), pause.resumption());
    }
    Ok(())
}

/// Makes the service read the pauses; returns how many of the trims that they rule out are under way. None if no service runs.
fn tell_service(run: &Path) -> Result<usize> {
    match Control::connect(run).and_then(|mut control| control.read_pauses()) {
        Ok(count) => Ok(count),
        Err(ControlError::NotRunning) => Ok(0),
        Err(error) => Err(error).context("paused, but the service does not know it yet"),
    }
}

/// Returns the mount points of the file system that `name`, one of them or its device, stands for; the one that is named comes
/// first.
pub fn mount_points(name: &Path) -> Result<Vec<PathBuf>> {
    let path = canonical(name)?;
    let all = mounts(Path::new(PROCFS))?;
    let device = path.metadata().ok().filter(|found| found.file_type().is_block_device());
    let mount = match &device {
        Some(device) => mount_from(&all, &path, device.rdev()),
        None => covering(&all, &path).filter(|mount| mount.target == path),
    };
    let mount = mount.with_context(|| {
        format!(
            "{} is not a mount point, nor a mounted device; findmnt -T names the mount point of a path",
            name.display()
        )
    })?;
    // A device stands for its first mount point, which is listed first.
    let named = device.is_none().then_some(mount);
    let same = all.iter().filter(|other| other.is_of_same_file_system(mount));
    Ok(named.into_iter().chain(same).map(|mount| mount.target.clone()).collect())
}

/// A mount point that hangs or is gone can still be named by its whole path.
fn canonical(mount: &Path) -> Result<PathBuf> {
    if mount.is_absolute() {
        return Ok(mount.canonicalize().unwrap_or_else(|_| mount.to_owned()));
    }
    mount.canonicalize().with_context(|| format!("cannot find {}", mount.display()))
}
