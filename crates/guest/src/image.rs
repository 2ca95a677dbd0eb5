//! Packs what a guest needs into an initramfs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trimtab_core::Bytes;
use walkdir::WalkDir;

use super::archive::Archive;
use super::binary::{Needs, library_directories, needs, without_symbols};
use super::error::{GuestError, at};
use super::kernel::Kernel;
use super::modules::Modules;
use super::{GuestOptions, PROGRAM, programs};

/// The list of modules, which also tells the program that it is a guest's first process.
pub(super) const PLAN: &str = "/trimtab-guest.json";
const INIT: &str = "/init";
const BIN: &str = "/bin";
/// The directories that all hold the same programs.
const ALIASES: [(&str, &str); 4] =
    [("/sbin", "bin"), ("/usr/bin", "../bin"), ("/usr/sbin", "../bin"), ("/usr/local/bin", "../../bin")];
/// Configurations that the packed programs read, if this machine has them.
const CONFIGURATIONS: [&str; 2] = ["/etc/mke2fs.conf", "/etc/protocols"];
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";

/// Modules that every guest loads besides those of its options.
const MODULES: [&str; 2] = ["loop", "fuse"];
/// Modules loaded if the kernel has them: new kernels compute checksums without modules. File systems ask for
/// them by the checksum's name, so that they are no dependencies that modules name.
const OPTIONAL_MODULES: [&str; 3] = ["crc32c_intel", "crc32c_generic", "crc32_generic"];

/// The steps of the first process before it runs the command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The files of the modules, in the order in which they are loaded.
    pub(super) modules: Vec<PathBuf>,
}

/// The packed files.
#[derive(Debug)]
pub(super) struct Contents {
    paths: BTreeSet<PathBuf>,
    /// The bytes of the caller's own files, with the libraries that those need.
    own: Bytes,
}

impl Contents {
    /// The bytes of the caller's own files, with the libraries that those need.
    pub(super) fn own_bytes(&self) -> Bytes {
        self.own
    }

    /// Whether there is a program of this name or absolute path.
    pub(super) fn has_program(&self, program: &str) -> bool {
        let path = Path::new(program);
        let in_bin = path.file_name().is_some_and(|name| self.paths.contains(&Path::new(BIN).join(name)));
        let dir = path.parent().unwrap_or(path);
        let is_alias = dir == Path::new(BIN) || ALIASES.iter().any(|(alias, _)| dir == Path::new(alias));
        self.paths.contains(path) || in_bin && (is_alias || !program.contains('/'))
    }
}

/// Packs the image of a guest into the file `path`.
///
/// # Errors
/// [`GuestError`] names what is missing on this machine.
pub(super) fn pack(
    options: &GuestOptions,
    kernel: Option<&Kernel>,
    path: &Path,
) -> Result<Contents, GuestError> {
    let out = File::create(path).map_err(at(path, "make"))?;
    let mut packer = Packer {
        archive: Archive::new(BufWriter::new(out)),
        path,
        packed: BTreeSet::new(),
        directories: library_directories(),
        libraries: BTreeMap::new(),
        home: None,
        bytes: Bytes::ZERO,
    };
    packer.skeleton()?;
    packer.modules(options, kernel)?;
    packer.program(&options.program, Path::new(PROGRAM))?;
    packer.write(|archive| archive.symlink(Path::new(INIT), Path::new(PROGRAM)))?;
    for name in &options.programs {
        let found = programs::find(name).ok_or_else(|| GuestError::NoProgram { program: name.clone() })?;
        packer.program(&found, &Path::new(BIN).join(name))?;
    }
    if options.tools {
        for name in programs::TOOLS {
            if let Some(found) = programs::find(name) {
                packer.program(&found, &Path::new(BIN).join(name))?;
            }
        }
    }
    let system = packer.bytes;
    options.files.iter().try_for_each(|file| packer.tree(file, Packing::Programs))?;
    options.data.iter().try_for_each(|data| packer.tree(data, Packing::Data))?;
    options.placed.iter().try_for_each(|(data, place)| packer.tree_at(data, place, Packing::Data))?;
    let own = packer.bytes.saturating_sub(system);
    let mut out = packer.archive.finish().map_err(at(path, "write"))?;
    out.flush().map_err(at(path, "write"))?;
    Ok(Contents { paths: packer.packed, own })
}

/// The purpose of the files in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    /// They may be run: programs get the libraries that they need.
    Programs,
    /// They are only read.
    Data,
}

struct Packer<'a> {
    archive: Archive<BufWriter<File>>,
    /// The file that the archive is written to.
    path: &'a Path,
    packed: BTreeSet<PathBuf>,
    /// Where libraries are looked for.
    directories: Vec<PathBuf>,
    /// The libraries that were found, by name.
    libraries: BTreeMap<String, PathBuf>,
    /// The guest's directory of libraries: the C library's, which its loader searches by default.
    home: Option<PathBuf>,
    /// The bytes of all files so far that are not part of the skeleton.
    bytes: Bytes,
}

impl Packer<'_> {
    fn write(
        &mut self,
        add: impl FnOnce(&mut Archive<BufWriter<File>>) -> io::Result<()>,
    ) -> Result<(), GuestError> {
        add(&mut self.archive).map_err(at(self.path, "write"))
    }

    fn skeleton(&mut self) -> Result<(), GuestError> {
        self.write(|archive| {
            archive.directory(Path::new(BIN))?;
            ALIASES.iter().try_for_each(|(alias, to)| archive.symlink(Path::new(alias), Path::new(to)))?;
            for dir in ["/dev", "/proc", "/sys", "/run", "/tmp", "/mnt", "/root", "/var/lib"] {
                archive.directory(Path::new(dir))?;
            }
            archive.file(Path::new("/etc/passwd"), 0o644, PASSWD.as_bytes())?;
            archive.file(Path::new("/etc/group"), 0o644, GROUP.as_bytes())?;
            archive.symlink(Path::new("/etc/mtab"), Path::new("/proc/mounts"))
        })?;
        let present = CONFIGURATIONS.iter().map(Path::new).filter(|path| path.is_file());
        present.into_iter().try_for_each(|path| {
            let data = fs::read(path).map_err(at(path, "read"))?;
            self.write(|archive| archive.file(path, 0o644, &data))
        })
    }

    /// Packs the modules that the guest loads; none of a kernel that has all drivers in it.
    fn modules(&mut self, options: &GuestOptions, kernel: Option<&Kernel>) -> Result<(), GuestError> {
        let mut plan = Plan { modules: Vec::new() };
        if let Some(kernel) = kernel {
            self.drivers(options, kernel, &mut plan)?;
        }
        let text = serde_json::to_vec(&plan).map_err(|error| at(self.path, "write")(error.into()))?;
        self.write(|archive| archive.file(Path::new(PLAN), 0o644, &text))
    }

    fn drivers(
        &mut self,
        options: &GuestOptions,
        kernel: &Kernel,
        plan: &mut Plan,
    ) -> Result<(), GuestError> {
        let modules = Modules::list(&kernel.modules, &kernel.release)?;
        let optional = OPTIONAL_MODULES.into_iter().filter(|name| modules.has(name));
        let drivers = options.modules.iter().map(String::as_str);
        let wanted: Vec<&str> = optional.chain(MODULES).chain(drivers).collect();
        for module in modules.with_dependencies(&wanted)? {
            let path = Path::new("/modules").join(module.name).with_extension("ko");
            self.write(|archive| archive.file(&path, 0o644, &module.data))?;
            plan.modules.push(path);
        }
        Ok(())
    }

    /// Packs the file `from` as `to`, with the loader and libraries that it needs if it is a program, and
    /// without what only a debugger reads.
    fn program(&mut self, from: &Path, to: &Path) -> Result<(), GuestError> {
        if !self.packed.insert(to.to_owned()) {
            return Ok(());
        }
        let data = read(from)?;
        match needs(from, &data) {
            None => self.file(from, to, &data),
            Some(needs) => {
                self.file(from, to, &without_symbols(data))?;
                self.needed(from, needs)
            }
        }
    }

    /// Adds the contents `data` of the file `from` as `to`, with its mode.
    fn file(&mut self, from: &Path, to: &Path, data: &[u8]) -> Result<(), GuestError> {
        let mode = fs::metadata(from).map_err(at(from, "read"))?.permissions().mode() & 0o777;
        self.bytes += Bytes(data.len() as u64);
        self.write(|archive| archive.file(to, mode, data))
    }

    /// Packs the loader and the libraries that the program `from` needs.
    fn needed(&mut self, from: &Path, needs: Needs) -> Result<(), GuestError> {
        if let Some(loader) = needs.loader {
            self.program(&loader, &loader)?;
        }
        let directories = || needs.search.iter().chain(&self.directories);
        let found: Vec<_> = needs
            .libraries
            .iter()
            .map(|name| {
                (name, self.libraries.get(name).cloned().or_else(|| find_library(name, directories())))
            })
            .collect();
        for (name, library) in found {
            let missing = || GuestError::NoLibrary { program: from.to_owned(), library: name.clone() };
            self.library(name, &library.ok_or_else(missing)?)?;
        }
        Ok(())
    }

    fn library(&mut self, name: &str, found: &Path) -> Result<(), GuestError> {
        self.libraries.insert(name.to_owned(), found.to_owned());
        let home = self.home.get_or_insert_with(|| c_library_directory(found, &self.directories));
        let place = home.join(name);
        self.program(found, &place)
    }

    /// Packs a file, or a directory with all below it, unchanged and under the same absolute path. A file
    /// that is named itself has to be able to run there; of those in a directory, nobody may mean to run
    /// each.
    fn tree(&mut self, path: &Path, packing: Packing) -> Result<(), GuestError> {
        let path = &std::path::absolute(path).map_err(at(path, "find"))?;
        self.tree_at(path, path, packing)
    }

    /// Packs a file, or a directory with all below it, unchanged, as `to`.
    fn tree_at(&mut self, path: &Path, to: &Path, packing: Packing) -> Result<(), GuestError> {
        let root = path.canonicalize().map_err(at(path, "read"))?;
        for entry in WalkDir::new(&root).sort_by_file_name() {
            let entry = entry.map_err(|error| at(path, "read")(error.into()))?;
            let from = entry.path();
            let place = match from.strip_prefix(&root) {
                Ok(below) if below != Path::new("") => to.join(below),
                _ => to.to_owned(),
            };
            let kind = entry.file_type();
            if kind.is_symlink() {
                let target = fs::read_link(from).map_err(at(from, "read"))?;
                self.write(|archive| archive.symlink(&place, &target))?;
            } else if kind.is_dir() {
                self.write(|archive| archive.directory(&place))?;
            } else if kind.is_file() && self.packed.insert(place.clone()) {
                let data = read(from)?;
                self.file(from, &place, &data)?;
                let needs = if packing == Packing::Programs { needs(from, &data) } else { None };
                match needs.map_or(Ok(()), |needs| self.needed(from, needs)) {
                    Err(GuestError::NoLibrary { .. }) if entry.depth() > 0 => {}
                    outcome => outcome?,
                }
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, GuestError> {
    fs::read(path).map_err(at(path, "read"))
}

/// The first file of this name that is a library of x86-64.
fn find_library<'a>(name: &str, mut directories: impl Iterator<Item = &'a PathBuf>) -> Option<PathBuf> {
    directories.find_map(|dir| {
        let path = dir.join(name);
        needs(&path, &fs::read(&path).ok()?)?;
        Some(path)
    })
}

/// The directory of the C library, or of the library `found` if there is none.
fn c_library_directory(found: &Path, directories: &[PathBuf]) -> PathBuf {
    let own = found.parent().unwrap_or(Path::new("/lib")).to_owned();
    let c_library = find_library("libc.so.6", std::iter::once(&own).chain(directories));
    c_library.and_then(|path| Some(path.parent()?.to_owned())).unwrap_or(own)
}
