//! The files that the results of an experiment go to, replaced as a whole at every save.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use tempfile::NamedTempFile;

/// Where results go.
pub struct Outputs {
    json: Vec<PathBuf>,
    page: Option<PathBuf>,
}

impl Outputs {
    /// The document to `json`, and to the directory `report` as `name` beside the page of it.
    pub fn new(json: Option<&Path>, report: Option<&Path>, name: &str) -> Result<Self> {
        if let Some(dir) = report {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        let paths = json.map(Path::to_owned).into_iter().chain(report.map(|dir| dir.join(name)));
        let outputs = Self { json: paths.collect(), page: report.map(|dir| dir.join("index.html")) };
        for path in outputs.json.iter().chain(&outputs.page) {
            must_take_a_file(path)?;
        }
        Ok(outputs)
    }

    /// The first file that the document goes to.
    pub fn document(&self) -> &Path {
        self.json.first().map_or(Path::new("nowhere"), PathBuf::as_path)
    }

    /// The page.
    pub fn page(&self) -> Option<&Path> {
        self.page.as_deref()
    }

    /// Writes the document and the page of it.
    pub fn save<D: Serialize>(&self, document: &D, html: impl FnOnce(&D) -> String) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(document)?;
        self.json.iter().try_for_each(|path| replace(path, &text))?;
        match &self.page {
            Some(path) => replace(path, html(document).as_bytes()),
            None => Ok(()),
        }
    }
}

/// Refuses a path that no file can be written to.
pub fn must_take_a_file(path: &Path) -> Result<()> {
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        bail!("cannot write results to {}: it is not a regular file", path.display());
    }
    if !directory(path).is_dir() {
        bail!(
            "cannot write results to {}: there is no directory {}",
            path.display(),
            directory(path).display()
        );
    }
    Ok(())
}

/// The directory that `path` is in.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replaces the file at `path`, so that a reader sees the old or the new one and nothing between. A
/// symbolic link stays, and what it names is replaced.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut file = draft(path).map_err(named)?;
    file.write_all(bytes).map_err(named)?;
    file.persist(path).map_err(|error| named(error.error))?;
    Ok(())
}

/// A new file beside `path`, which is to get that name when it is whole.
pub fn draft(path: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(directory(path))
}
