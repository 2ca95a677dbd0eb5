//! Programs and libraries (ELF): what they need to run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use elf::ElfBytes;
use elf::abi::{DT_NEEDED, DT_RPATH, DT_RUNPATH, EM_X86_64, PT_INTERP, PT_LOAD};
use elf::endian::LittleEndian;
use elf::file::Class;

/// The length of the header of a 64-bit binary.
const HEADER: usize = 64;
const CONFIGURATION: &str = "/etc/ld.so.conf";
/// The directories that loaders search last, on common distributions.
const USUAL: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// The loader and libraries that a program or library needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Needs {
    /// The loader, for a program.
    pub(super) loader: Option<PathBuf>,
    /// The names of its libraries.
    pub(super) libraries: Vec<String>,
    /// The directories in which its libraries are searched first.
    pub(super) search: Vec<PathBuf>,
}

/// Returns what the binary `data` needs, which is the file `path`; `None` if it is no binary of x86-64.
pub(super) fn needs(path: &Path, data: &[u8]) -> Option<Needs> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(data).ok()?;
    if file.ehdr.class != Class::ELF64 || file.ehdr.e_machine != EM_X86_64 {
        return None;
    }
    let mut needs = Needs { loader: None, libraries: Vec::new(), search: Vec::new() };
    let interpreter = file.segments()?.iter().find(|segment| segment.p_type == PT_INTERP);
    if let Some(segment) = interpreter {
        let name = std::str::from_utf8(file.segment_data(&segment).ok()?).ok()?;
        needs.loader = Some(PathBuf::from(name.trim_end_matches('\0')));
    }
    let common = file.find_common_data().ok()?;
    if let (Some(dynamic), Some(strings)) = (common.dynamic, common.dynsyms_strs) {
        for entry in dynamic.iter() {
            let text = || strings.get(entry.d_val() as usize).ok().map(str::to_owned);
            match entry.d_tag {
                DT_NEEDED => needs.libraries.extend(text()),
                DT_RPATH | DT_RUNPATH => needs.search.extend(search_path(&text()?, path)),
                _ => {}
            }
        }
    }
    Some(needs)
}

/// The directories of a search path within the binary `path`.
fn search_path(text: &str, path: &Path) -> Vec<PathBuf> {
    let origin =
        path.canonicalize().ok().and_then(|path| Some(path.parent()?.to_string_lossy().into_owned()));
    let origin = origin.unwrap_or_default();
    let placed = text.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
    placed.split(':').filter(|dir| !dir.is_empty()).map(PathBuf::from).collect()
}

/// Cuts off what only a debugger reads, behind all that is loaded. Less has to be unpacked at every boot.
pub(super) fn without_symbols(mut data: Vec<u8>) -> Vec<u8> {
    const SECTIONS_OFFSET: std::ops::Range<usize> = 0x28..0x30;
    const SECTIONS_COUNT_AND_NAMES: std::ops::Range<usize> = 0x3c..0x40;
    let Some(end) = loaded_length(&data) else { return data };
    data.truncate(end);
    data[SECTIONS_OFFSET].fill(0);
    data[SECTIONS_COUNT_AND_NAMES].fill(0);
    data
}

/// The length of the part of a 64-bit binary that is loaded or describes itself.
fn loaded_length(data: &[u8]) -> Option<usize> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(data).ok()?;
    if file.ehdr.class != Class::ELF64 {
        return None;
    }
    let segments = file.segments()?;
    let length = u64::from(file.ehdr.e_phnum) * u64::from(file.ehdr.e_phentsize);
    let headers = file.ehdr.e_phoff.checked_add(length)?;
    let mut ends = segments.iter().filter(|segment| segment.p_type == PT_LOAD).peekable();
    ends.peek()?;
    let end = ends
        .try_fold(headers, |end, segment| Some(end.max(segment.p_offset.checked_add(segment.p_filesz)?)))?;
    usize::try_from(end).ok().filter(|end| (HEADER..=data.len()).contains(end))
}

/// The directories where this machine's loader looks for libraries.
pub(super) fn library_directories() -> Vec<PathBuf> {
    let mut directories = Vec::new();
    configured(Path::new(CONFIGURATION), &mut directories, &mut BTreeSet::new());
    directories.extend(USUAL.map(PathBuf::from));
    directories
}

/// Adds the directories of a configuration of the loader, and of those that it includes. One that can't
/// be read has none.
fn configured(path: &Path, directories: &mut Vec<PathBuf>, seen: &mut BTreeSet<PathBuf>) {
    if !seen.insert(path.to_owned()) {
        return;
    }
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        match line.strip_prefix("include ") {
            Some(pattern) => {
                for included in matching(Path::new(pattern.trim()), path) {
                    configured(&included, directories, seen);
                }
            }
            None if line.starts_with('/') => directories.push(line.into()),
            None => {}
        }
    }
}

/// The files that a pattern with one `*` in the last part names, in their order.
fn matching(pattern: &Path, of: &Path) -> Vec<PathBuf> {
    let pattern = of.parent().unwrap_or(of).join(pattern);
    let (Some(dir), Some(name)) = (pattern.parent(), pattern.file_name()) else { return Vec::new() };
    let name = name.to_string_lossy();
    let Some((start, end)) = name.split_once('*') else { return vec![pattern.clone()] };
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
    };
    let mut found: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(fits).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executable::make_executable;

    #[test]
    fn needs_of_a_program_are_its_loader_and_libraries() {
        let path = std::env::current_exe().unwrap();
        let needs = needs(&path, &fs::read(&path).unwrap()).unwrap();
        assert!(needs.loader.unwrap().file_name().unwrap().to_str().unwrap().starts_with("ld-linux"));
        assert!(needs.libraries.iter().any(|name| name == "libc.so.6"), "{:?}", needs.libraries);
        assert_eq!(super::needs(&path, b"#!/bin/sh\n"), None);
    }

    #[test]
    fn program_runs_without_its_symbols() {
        let whole = fs::read("/bin/cat").unwrap();
        let exe = std::env::current_exe().unwrap();
        let large = fs::read(&exe).unwrap();
        assert!(without_symbols(large.clone()).len() < large.len() / 2);
        let dir = tempfile::tempdir().unwrap();
        let short = dir.path().join("cat");
        make_executable(&short, &without_symbols(whole));
        let output = std::process::Command::new(&short).arg("/proc/self/comm").output().unwrap();
        assert_eq!(output.stdout, b"cat\n");
        assert_eq!(without_symbols(b"text".to_vec()), b"text");
    }

    #[test]
    fn damaged_binary_is_left_as_it_was() {
        let whole = fs::read("/bin/cat").unwrap();
        // The offset of the program headers, which follow the header; then the offset of each segment in the file.
        let segments = (64..64 + 13 * 56).step_by(56).map(|segment| segment + 8);
        for offset in std::iter::once(0x20).chain(segments) {
            for value in [u64::MAX, u64::MAX - 63, 0] {
                let mut damaged = whole.clone();
                damaged[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
                assert!(without_symbols(damaged).len() >= HEADER);
            }
        }
    }

    #[test]
    fn configuration_of_the_loader_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("conf"), "/first # comment\ninclude d/*.conf\ninclude conf\n").unwrap();
        fs::write(dir.path().join("d/b.conf"), "/third\n").unwrap();
        fs::write(dir.path().join("d/a.conf"), "/second\n").unwrap();
        fs::write(dir.path().join("d/other"), "/never\n").unwrap();
        let mut directories = Vec::new();
        configured(&dir.path().join("conf"), &mut directories, &mut BTreeSet::new());
        assert_eq!(directories, ["/first", "/second", "/third"].map(PathBuf::from));
    }

    #[test]
    fn search_path_starts_at_the_binary() {
        let path = Path::new("/bin/sh");
        let origin = path.canonicalize().unwrap().parent().unwrap().to_owned();
        assert_eq!(search_path("$ORIGIN/../lib:/opt", path), [origin.join("../lib"), "/opt".into()]);
    }
}
