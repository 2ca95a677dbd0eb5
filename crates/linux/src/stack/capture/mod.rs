//! Captures what [`Stack::of`] and [`Setup::of`] read, as a small tree with nothing private in it.

mod scrub;
mod sysfs;
mod tree;
mod words;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::in_use::{InUse, Swap};
use super::{CronTrim, FstrimService, Layer, LayerKind, Machine, Setup, Stack, StackError, map};
use crate::mount::Mount;
use scrub::Scrub;
use tree::Tree;

/// Why a capture failed.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The archive can't be written.
    #[error("cannot write the archive")]
    Write(#[from] io::Error),
    /// The machine can't be read.
    #[error(transparent)]
    Stack(#[from] StackError),
}

/// Writes a `.tar.gz` to `out` of what was read on `machine` for `stacks`, `setup` among it, all of it in the
/// directory `top`. [`Machine::captured`] finds the same stacks and the same setup in it, but for names: of users,
/// hosts, volumes, directories, file systems and drives all but well-known words are replaced, each by
/// the same everywhere.
///
/// # Errors
/// [`CaptureError`].
pub fn capture(
    machine: &Machine,
    stacks: &[Stack],
    setup: &Setup,
    top: &Path,
    out: impl Write,
) -> Result<(), CaptureError> {
    let mut zipped = GzEncoder::new(out, Compression::default());
    tree(machine, stacks, setup)?.archive(top, &mut zipped)?;
    Ok(zipped.finish()?.flush()?)
}

/// The tree of what was read on `machine` for `stacks`.
fn tree(machine: &Machine, stacks: &[Stack], settings: &Setup) -> Result<Tree, StackError> {
    let in_use = InUse::of(machine)?;
    let layers: Vec<_> = stacks.iter().flat_map(|stack| &stack.layers).collect();
    let mut scrub = Scrub::new(layers.iter().filter(|layer| layer.number.is_some()).map(|layer| &layer.name));
    let mut tree = Tree::default();
    sysfs::copy(machine, &layers, &mut scrub, &mut tree);
    in_use_of(&in_use, stacks, &mut scrub, &mut tree);
    setup(settings, &mut scrub, &mut tree);
    for layer in layers {
        if let (LayerKind::DeviceMapper(table), Some(number)) = (&layer.kind, layer.number) {
            let lines = table.iter().map(|line| scrub.table_line(&map::line_of(line)) + "\n");
            tree.file(format!("trimtab/dm/{number}"), lines.collect::<String>());
        }
    }
    let targets = stacks.iter().filter_map(|stack| stack.layers.first());
    let targets = targets.map(|target| scrub.path(target.path().as_ref()) + "\n");
    tree.file("trimtab/targets", targets.collect::<String>());
    Ok(tree)
}

/// Adds the mounts and the swap that are layers.
fn in_use_of(in_use: &InUse, stacks: &[Stack], scrub: &mut Scrub, tree: &mut Tree) {
    let mut mounts = String::new();
    for mount in &in_use.mounts {
        let Some(source) = stacks.iter().find_map(|stack| source(stack, mount)) else { continue };
        let Mount { id, number, target, fstype, options, super_options, .. } = mount;
        let (target, source) = (scrub.path(target), scrub.path(&source));
        let (options, super_options) = (scrub.options(options), scrub.options(super_options));
        mounts += &format!("{id} 1 {number} / {target} {options} - {fstype} {source} {super_options}\n");
    }
    tree.file("proc/self/mountinfo", mounts);
    let mut swaps = "Filename Type Size Used Priority\n".to_owned();
    for Swap { path, is_file, size } in &in_use.swaps {
        let is_it = |layer: &Layer| layer.kind == LayerKind::Swap && Path::new(&layer.name) == path;
        if stacks.iter().flat_map(|stack| &stack.layers).any(is_it) {
            let kind = if *is_file { "file" } else { "partition" };
            let size = size.map_or(0, |size| size.get() / 1024);
            swaps += &format!("{} {kind} {size} 0 -2\n", scrub.path(path));
        }
    }
    tree.file("proc/swaps", swaps);
}

/// The source of a mount that is a layer of `stack`: the devices by the kernel's names, since no links to
/// them are captured. None of any other mount.
fn source(stack: &Stack, mount: &Mount) -> Option<PathBuf> {
    let is_it = |layer: &&Layer| match &layer.kind {
        LayerKind::FileSystem(system) => {
            system.source == mount.source && system.targets.contains(&mount.target)
        }
        _ => false,
    };
    let below = stack.layers.iter().find(is_it)?.below.iter().map(|below| &stack.layers[below.layer]);
    let devices: Vec<_> = below.filter(|layer| layer.number.is_some()).map(Layer::path).collect();
    Some(if devices.is_empty() { mount.source.clone() } else { devices.join(":").into() })
}

/// Adds the files that are read back as `setup`.
fn setup(setup: &Setup, scrub: &mut Scrub, tree: &mut Tree) {
    let mut fstab = String::new();
    for line in &setup.fstab {
        let source = line.source.to_string_lossy();
        if !is_of_device(&source) {
            // That there is a line is all that matters of it.
            fstab += "none none none\n";
            continue;
        }
        let (source, target) = (scrub.text(&source), scrub.path(&line.target));
        fstab += &format!("{source} {target} {} {}\n", line.fstype, scrub.options(&line.options.join(",")));
    }
    tree.file("etc/fstab", fstab);
    let mut crypttab = String::new();
    for line in &setup.crypttab {
        let (name, source) = (scrub.text(&line.name), scrub.text(&line.source));
        let [options, unread] =
            [&line.options, &line.unread].map(|options| scrub.options(&options.join(",")));
        crypttab += &format!("{name} {source} none {options} {unread}\n");
    }
    tree.file("etc/crypttab", crypttab);
    if let Some(issues) = setup.lvm_issues_discards {
        tree.file("etc/lvm/lvm.conf", format!("devices/issue_discards = {}\n", u8::from(issues)));
    }
    tree.file("proc/cmdline", scrub.command_line(&setup.command_line.join(" ")));
    if setup.container {
        tree.file("run/systemd/container", String::new());
    }
    if let Some(timer) = &setup.timer {
        tree.file("trimtab/timer", timer.lines());
    }
    if let Some(service) = &setup.fstrim_service {
        let mut words =
            |command: &[String]| -> Vec<String> { command.iter().map(|word| scrub.text(word)).collect() };
        let commands: Vec<_> = service.commands.iter().map(|command| words(command)).collect();
        let service = FstrimService { commands, ..service.clone() };
        tree.file("trimtab/fstrim-service", service.lines());
    }
    if let Some(served) = &setup.served {
        let lines = served.iter().map(|served| served.line(&scrub.path(&served.mount)));
        tree.file("trimtab/served", lines.collect::<String>());
    }
    if setup.is_down {
        tree.file("trimtab/down", String::new());
    }
    for unit in &setup.own_units {
        tree.file(format!("etc/systemd/system/multi-user.target.wants/{unit}"), String::new());
    }
    for CronTrim { file, is_own, words } in &setup.cron {
        let words: Vec<_> = words.iter().map(|word| scrub.text(word)).collect();
        let program = if *is_own { "trimtab trim" } else { "fstrim" };
        tree.append(scrub.path(file).trim_start_matches('/'), &format!("{program} {}\n", words.join(" ")));
    }
    for (name, allows) in &setup.luks_allows {
        let flags = if *allows { "allow-discards\n" } else { "\n" };
        tree.file(format!("trimtab/luks/{name}"), flags.to_owned());
    }
    for rule in &setup.udev_rules {
        let file = scrub.path(&rule.file);
        tree.append(file.trim_start_matches('/'), &(scrub.rule(&rule.line) + "\n"));
    }
}

/// Whether the source of a line of fstab is a device, and not a server or a pseudo file system's name.
fn is_of_device(source: &str) -> bool {
    let is_path = source.starts_with('/') && !source.starts_with("//");
    is_path || ["UUID=", "LABEL=", "PARTUUID=", "PARTLABEL=", "ID="].iter().any(|tag| source.starts_with(tag))
}
