//! Hashes the sources that results of a simulation depend on, so that the cells of a sweep that another build computed are not
//! mixed with this one's. A published crate has no sources of the others beside it; its version says as much.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

/// The sources of the crates that replay traces and run synthetic workloads, from this crate's root.
const SOURCES: [&str; 4] = ["../core/src", "../ftl/src", "../trace/src", "src"];

fn main() -> io::Result<()> {
    let mut files = BTreeMap::new();
    if Path::new("../ftl/src").is_dir() {
        for directory in SOURCES {
            println!("cargo::rerun-if-changed={directory}");
            read_below(Path::new(directory), &mut files)?;
        }
    }
    let mut hash = Xxh3::new();
    for (path, text) in &files {
        hash.update(path.to_string_lossy().as_bytes());
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    let build = if files.is_empty() { "published".to_owned() } else { format!("{:016x}", hash.digest()) };
    println!("cargo::rustc-env=TRIMTAB_SOURCES={build}");
    Ok(())
}

fn read_below(directory: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            read_below(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.insert(path.clone(), fs::read(&path)?);
        }
    }
    Ok(())
}
