//! Runs in virtual time: each in a guest of its own, several at once.
//!
//! A guest runs `trimtab compare --clock real` for one file system, policy and length of pauses, and
//! its document comes back. The real clock of the guest is the virtual time.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::{CompareDocument, Engine, Filling, Run};
use trimtab_drive::Room;
use trimtab_linux::environment::available_memory;
use trimtab_linux::{CGROUPS, PROCFS};

use super::CompareOptions;
use super::plan::{Planned, Site};
use crate::error::{LabError, io_at};
use crate::fs::FileSystem;
use crate::progress::Progress;
use crate::testbed::room_of;
use crate::workload::WorkloadOptions;
use trimtab_core::interrupt::Interrupt;
use trimtab_guest::{
    GuestCommand, GuestError, GuestImage, GuestOptions, GuestOutput, KernelChoice, PROGRAM, uml_is_built,
};
use trimtab_linux::environment::processors;

/// Memory that a guest needs beside the data of the drive: for its kernel, programs, page cache and flash
/// model.
const SYSTEM_MEMORY: Bytes = Bytes(768 << 20);
/// Memory for the tables of a large drive's flash model.
const TABLES: Bytes = Bytes(512 << 20);
/// The document that a guest writes.
const DOCUMENT: &str = "compare.json";
/// Where the guest has the profiles. Names that differ from run to run, as those of temporary directories do, would change how
/// long it looks for files.
const PROFILES: &str = "/trimtab-profiles";
/// The profile of the drive, and that by which smart judges it.
const DRIVE_PROFILE: &str = "drive.toml";
const SMART_PROFILE: &str = "smart.toml";

/// How guests are made.
#[derive(Debug, Clone)]
pub struct VirtualOptions {
    /// The program that runs them.
    pub engine: Engine,
    /// The kernel that they run.
    pub kernel: KernelChoice,
    /// Files of this machine that the user's command needs.
    pub files: Vec<PathBuf>,
    /// The wall time after which a guest counts as hung.
    pub limit: Duration,
}

/// Guests, ready to run.
pub(super) struct VirtualLab<'a> {
    options: &'a CompareOptions,
    limit: Duration,
    images: Vec<(FileSystem, GuestImage)>,
    has_smart_profile: bool,
}

/// The guests of this process, whatever comparison they belong to: at most one a processor.
static RUNNING: Guests = Guests { count: Mutex::new(0), one_ended: Condvar::new() };

struct Guests {
    count: Mutex<usize>,
    one_ended: Condvar,
}

impl Guests {
    /// Waits until one more may run.
    fn enter(&self) -> Entered<'_> {
        let most = processors();
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.one_ended.wait_while(count, |count| *count >= most);
        *count.unwrap_or_else(PoisonError::into_inner) += 1;
        Entered(self)
    }
}

/// A guest that may run, until this is dropped.
struct Entered<'a>(&'a Guests);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.one_ended.notify_one();
    }
}

/// Takes a run and its place in the plan.
type Keep<'k, E> = dyn FnMut(usize, Run, &mut dyn Progress) -> Result<(), E> + 'k;

/// A message from a guest's thread.
enum Report<'a> {
    Started(Planned<'a>),
    Ended(usize, Box<Result<Run, LabError>>),
}

impl<'a> VirtualLab<'a> {
    /// Makes an image for each file system. Where User Mode Linux does not run, QEMU takes its place, and a note says so.
    ///
    /// # Errors
    /// [`LabError::Guest`], or a profile that can't be written.
    pub fn prepare(
        options: &'a CompareOptions,
        virtual_options: &VirtualOptions,
        profile_toml: &str,
        smart_profile: Option<&str>,
        file_systems: &[FileSystem],
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
    ) -> Result<Self, LabError> {
        let profiles = tempfile::Builder::new().prefix("trimtab-profiles-").tempdir();
        let profiles = profiles.map_err(io_at(&std::env::temp_dir(), "make a directory in"))?;
        for (name, text) in [(DRIVE_PROFILE, Some(profile_toml)), (SMART_PROFILE, smart_profile)] {
            let path = profiles.path().join(name);
            text.map_or(Ok(()), |text| fs::write(&path, text)).map_err(io_at(&path, "write"))?;
        }
        let mut data = Vec::new();
        if let WorkloadOptions::Tree { source: Some(source), .. } = &options.workload {
            data.push(std::path::absolute(source).map_err(io_at(source, "find"))?);
        }
        let is_command = matches!(options.workload, WorkloadOptions::Exec { .. });
        let is_tarball = matches!(&options.workload, WorkloadOptions::Tree { source: Some(source), .. } if source.is_file());
        let is_maintenance = matches!(options.workload, WorkloadOptions::Maintenance(_));
        let guest = |engine, file_system: FileSystem| GuestOptions {
            engine,
            kernel: virtual_options.kernel.clone(),
            program: options.program.clone(),
            modules: vec![file_system.name().to_owned()],
            programs: file_system.programs(is_maintenance),
            tools: is_command || is_tarball,
            files: virtual_options.files.clone(),
            data: data.clone(),
            placed: vec![(profiles.path().to_owned(), PROFILES.into())],
        };
        let prepare = |engine| -> Result<Vec<_>, GuestError> {
            let mut images = Vec::new();
            for &file_system in file_systems {
                let image = GuestImage::prepare(&guest(engine, file_system), interrupt)?;
                if images.is_empty() && engine != Engine::Qemu {
                    image.try_out(interrupt)?;
                }
                if let WorkloadOptions::Exec { command } = &options.workload {
                    image.require(&command[0].to_string_lossy())?;
                }
                images.push((file_system, image));
            }
            Ok(images)
        };
        if virtual_options.engine != Engine::Qemu && !uml_is_built() {
            progress.note("building User Mode Linux, which takes some minutes and happens once");
        }
        let images = match prepare(virtual_options.engine) {
            Err(error @ GuestError::NoUml { .. }) => {
                progress.note(&format!("{error}; the guests run in QEMU instead"));
                prepare(Engine::Qemu)?
            }
            prepared => prepared?,
        };
        Ok(Self { options, limit: virtual_options.limit, images, has_smart_profile: smart_profile.is_some() })
    }

    /// The release of the guests' kernel, as uname gives it.
    pub fn release(&self) -> &str {
        self.images[0].1.release()
    }

    /// The program that runs the guests.
    pub fn engine(&self) -> Engine {
        self.images[0].1.engine()
    }

    /// Does all runs of `plan`, several at once, and hands each to `keep` with its place in the plan as it
    /// ends. The first that fails ends the others.
    ///
    /// # Errors
    /// The error of the first run that failed, or of `keep`.
    pub fn run_all<E: From<LabError>>(
        &self,
        plan: &[Planned],
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
        keep: &mut Keep<E>,
    ) -> Result<(), E> {
        let next = Mutex::new(plan.iter().enumerate());
        let (reports, received) = mpsc::channel();
        // Ends the other guests if one fails, or if the user interrupts.
        let stop = interrupt.child();
        thread::scope(|scope| {
            for _ in 0..self.guests_at_once(plan)? {
                let (reports, next, stop) = (reports.clone(), &next, &stop);
                scope.spawn(move || self.work(next, stop, &reports));
            }
            drop(reports);
            let mut outcome = Ok(());
            for report in received {
                let ended = match report {
                    Report::Started(Planned { site, policy, idle, run }) => {
                        progress.run_started(site.name(), policy, idle, run);
                        Ok(())
                    }
                    Report::Ended(place, ended) => match *ended {
                        Ok(run) => keep(place, run, progress),
                        Err(error) => Err(error.into()),
                    },
                };
                if outcome.is_ok() && ended.is_err() {
                    stop.ask();
                    outcome = ended;
                }
            }
            outcome
        })
    }

    /// How many guests may run at once: one a processor, and no more than fit into memory.
    fn guests_at_once(&self, plan: &[Planned]) -> Result<usize, LabError> {
        let available = available_memory(Path::new(PROCFS), Path::new(CGROUPS))?;
        let needed = plan.first().map_or(SYSTEM_MEMORY, |planned| self.memory_for(planned.site));
        if needed > available {
            return Err(LabError::GuestMemory { needed, available });
        }
        let fitting = (available.0 / needed.0) as usize;
        Ok(processors().min(fitting).min(plan.len()))
    }

    fn work<'p>(
        &self,
        next: &Mutex<impl Iterator<Item = (usize, &'p Planned<'p>)>>,
        stop: &Interrupt,
        reports: &Sender<Report<'p>>,
    ) {
        loop {
            let taken = next.lock().map(|mut next| next.next());
            let Ok(Some((place, planned))) = taken else { return };
            let _entered = RUNNING.enter();
            if stop.is_set() {
                return;
            }
            let _ = reports.send(Report::Started(*planned));
            let _ = reports.send(Report::Ended(place, Box::new(self.run(*planned, stop))));
        }
    }

    fn run(&self, planned: Planned, stop: &Interrupt) -> Result<Run, LabError> {
        let Site::Emulated { file_system, size, filling, .. } = planned.site else {
            unreachable!("a directory of the user's is not in a guest");
        };
        let (_, image) =
            self.images.iter().find(|(of, _)| *of == file_system).expect("every file system has one");
        let command = GuestCommand {
            arguments: self.arguments(planned, file_system, size, filling),
            files_back: vec![DOCUMENT.into()],
            memory: self.memory_for(planned.site),
            limit: self.limit,
        };
        let output = image.run(&command, stop, &mut |_| {})?;
        let mut run = run_of(output)?;
        run.run = planned.run;
        Ok(run)
    }

    fn memory_for(&self, site: Site) -> Bytes {
        let files = self.images.first().map_or(Bytes::ZERO, |(_, image)| image.memory_of_files());
        let drive = match site {
            Site::Emulated { size, filling, .. } => match room_of(size, filling) {
                Room::Pool(memory) => TABLES + memory,
                Room::Checked | Room::Kept | Room::Sparse => size,
            },
            Site::Directory { .. } => Bytes::ZERO,
        };
        SYSTEM_MEMORY + drive + files
    }

    /// The command line of `trimtab compare` in the guest.
    fn arguments(
        &self,
        planned: Planned,
        file_system: FileSystem,
        size: Bytes,
        filling: Option<Filling>,
    ) -> Vec<String> {
        let options = self.options;
        let span = |span: Duration| humantime::format_duration(span).to_string().replace(' ', "");
        let mut words: Vec<OsString> =
            [PROGRAM, "compare", "--clock", "real", "--runs", "1"].map(OsString::from).to_vec();
        let mut add = |name: &str, value: String| words.extend([name.into(), value.into()]);
        add("--fs", file_system.name().to_owned());
        add("--policy", planned.policy.to_string());
        add("--idle", span(planned.idle));
        add("--profile", format!("{PROFILES}/{DRIVE_PROFILE}"));
        add("--size", size.0.to_string());
        if let Some(Filling { percent, room }) = filling {
            add("--full", percent.to_string());
            add("--room", room.0.to_string());
        }
        add("--seed", options.seed.to_string());
        add("--probe", span(options.probe_interval.unwrap_or_default()));
        if self.has_smart_profile {
            add("--smart-profile", format!("{PROFILES}/{SMART_PROFILE}"));
        }
        if options.writers > 1 {
            add("--writers", options.writers.to_string());
        }
        add("--json", DOCUMENT.to_owned());
        if !options.merges {
            words.push("--no-merges".into());
        }
        words.extend(options.workload.arguments());
        words.into_iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

/// The run in a guest's document, or why there is none.
fn run_of(output: GuestOutput) -> Result<Run, LabError> {
    let failed = |reason: &str| LabError::InGuest { reason: reason.to_owned() };
    let document = output.files.into_iter().next().flatten();
    let document = document.and_then(|text| serde_json::from_slice::<CompareDocument>(&text).ok());
    let Some(document) = document else {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let line = stderr.lines().map(str::trim).rfind(|line| !line.is_empty());
        return Err(failed(line.unwrap_or("it ended without a message").trim_start_matches("trimtab: ")));
    };
    if let Some(reason) = &document.stopped {
        return Err(failed(reason));
    }
    document.runs.into_iter().next().ok_or_else(|| failed("it made no run"))
}
