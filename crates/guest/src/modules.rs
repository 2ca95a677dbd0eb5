//! The modules of a kernel, and which others they need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use elf::ElfBytes;
use elf::endian::LittleEndian;
use walkdir::WalkDir;

use super::decompress::decompress;
use super::error::{GuestError, at};

/// The endings of a module's file.
const ENDINGS: [&str; 4] = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"];

/// A module, ready to be loaded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) data: Vec<u8>,
}

/// The modules of a kernel.
#[derive(Debug)]
pub(super) struct Modules {
    release: String,
    files: BTreeMap<String, PathBuf>,
    /// Modules built into the kernel.
    builtin: BTreeSet<String>,
}

impl Modules {
    /// Lists the modules below `dir`, such as `/lib/modules/6.12.90`.
    ///
    /// # Errors
    /// [`GuestError::File`].
    pub(super) fn list(dir: &Path, release: &str) -> Result<Self, GuestError> {
        let mut files = BTreeMap::new();
        for entry in WalkDir::new(dir.join("kernel")) {
            let entry = entry.map_err(|error| at(dir, "list")(error.into()))?;
            if let Some(name) = module_name(entry.path()) {
                files.insert(name, entry.into_path());
            }
        }
        // A kernel of one's own may lack the list; every module is then looked for as a file.
        let builtin = fs::read_to_string(dir.join("modules.builtin")).unwrap_or_default();
        let builtin = builtin.lines().filter_map(|line| module_name(Path::new(line))).collect();
        Ok(Self { release: release.to_owned(), files, builtin })
    }

    /// Whether the kernel has this module, or doesn't need it because it is built in.
    pub(super) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name) || self.builtin.contains(name)
    }

    /// Returns the modules `names` with all that they depend on, each once and after what it depends on.
    ///
    /// # Errors
    /// [`GuestError::NoModule`] names one that is missing; [`GuestError::File`].
    pub(super) fn with_dependencies(&self, names: &[&str]) -> Result<Vec<Module>, GuestError> {
        let mut modules = Vec::new();
        names.iter().try_for_each(|name| self.add(name, &mut modules))?;
        Ok(modules)
    }

    fn add(&self, name: &str, modules: &mut Vec<Module>) -> Result<(), GuestError> {
        if self.builtin.contains(name) || modules.iter().any(|module| module.name == name) {
            return Ok(());
        }
        let missing = || GuestError::NoModule { release: self.release.clone(), module: name.to_owned() };
        let path = self.files.get(name).ok_or_else(missing)?;
        let stored = fs::read(path).map_err(at(path, "read"))?;
        let data = decompress(&stored).map_err(at(path, "decompress"))?.unwrap_or(stored);
        for needed in depends(&data) {
            self.add(&needed, modules)?;
        }
        modules.push(Module { name: name.to_owned(), data });
        Ok(())
    }
}

/// The name of the module in a file, with underscores as the kernel has it.
fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let name = ENDINGS.iter().find_map(|ending| file.strip_suffix(ending))?;
    Some(name.replace('-', "_"))
}

/// The modules that a module says it depends on. It is a property of the module itself, from which depmod
/// makes modules.dep; packages come without that file.
fn depends(module: &[u8]) -> Vec<String> {
    let Some(properties) = properties(module) else { return Vec::new() };
    let mut values = properties
        .split(|byte| *byte == 0)
        .filter_map(|property| std::str::from_utf8(property).ok()?.strip_prefix("depends="));
    let names = values.next().unwrap_or_default().split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace('-', "_")).collect()
}

fn properties(module: &[u8]) -> Option<&[u8]> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(module).ok()?;
    let section = file.section_header_by_name(".modinfo").ok()??;
    Some(file.section_data(&section).ok()?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relocatable ELF file with nothing but a section `.modinfo` and the section of names.
    fn module(properties: &[u8]) -> Vec<u8> {
        let names = b"\0.modinfo\0.shstrtab\0";
        let mut file = vec![0; 64];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let mut put = |at: usize, value: &[u8]| file[at..at + value.len()].copy_from_slice(value);
        put(16, &1u16.to_le_bytes());
        put(18, &62u16.to_le_bytes());
        put(20, &1u32.to_le_bytes());
        put(40, &(64 + (properties.len() + names.len()) as u64).to_le_bytes());
        put(52, &64u16.to_le_bytes());
        put(58, &64u16.to_le_bytes());
        put(60, &3u16.to_le_bytes());
        put(62, &2u16.to_le_bytes());
        file.extend(properties);
        file.extend(names);
        let mut section = |name: u32, kind: u32, offset: usize, size: usize| {
            file.extend(name.to_le_bytes());
            file.extend(kind.to_le_bytes());
            for field in [0, 0, offset as u64, size as u64, 0, 1, 0] {
                file.extend(field.to_le_bytes());
            }
            // Link and info share the sixth field; all of it is zero here.
        };
        section(0, 0, 0, 0);
        section(1, 1, 64, properties.len());
        section(10, 3, 64 + properties.len(), names.len());
        file
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("kernel/fs");
        fs::create_dir_all(&kernel).unwrap();
        let compressed = |data: Vec<u8>| zstd::encode_all(data.as_slice(), 1).unwrap();
        fs::write(kernel.join("top.ko"), module(b"license=GPL\0depends=left,right-side\0")).unwrap();
        fs::write(kernel.join("left.ko.zst"), compressed(module(b"depends=base,part\0"))).unwrap();
        fs::write(kernel.join("right-side.ko"), module(b"depends=base\0")).unwrap();
        fs::write(kernel.join("base.ko"), module(b"depends=\0")).unwrap();
        fs::write(kernel.join("broken.ko"), module(b"depends=absent\0")).unwrap();
        fs::write(dir.path().join("modules.builtin"), "kernel/lib/part.ko\n").unwrap();
        dir
    }

    #[test]
    fn dependencies_come_first_and_once() {
        let dir = tree();
        let modules = Modules::list(dir.path(), "6.1").unwrap();
        let order = modules.with_dependencies(&["part", "top", "base"]).unwrap();
        let names: Vec<_> = order.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["base", "left", "right_side", "top"]);
        assert!(order.iter().all(|module| module.data.starts_with(b"\x7fELF")));
    }

    #[test]
    fn missing_module_is_named() {
        let dir = tree();
        let modules = Modules::list(dir.path(), "6.1").unwrap();
        assert!(modules.has("part") && modules.has("base") && !modules.has("absent"));
        for wanted in ["absent", "broken"] {
            let error = modules.with_dependencies(&[wanted]).unwrap_err();
            assert!(matches!(&error, GuestError::NoModule { module, .. } if module == "absent"), "{error}");
        }
    }
}
