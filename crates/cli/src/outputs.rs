//! The files that the results of an experiment go to, replaced as a whole at every save.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde::Serialize;
use trimtab_linux::file::{Output, create_directory};

/// Where results go.
pub struct Outputs {
    json: Vec<Output>,
    page: Option<Output>,
}

/// Opens the file to write. Fails if there is one and it is not to be replaced.
pub fn new_output(output: &Path, overwrite: bool) -> Result<Output> {
    let file = Output::open(output)?;
    if file.exists()? && !overwrite {
        bail!("{} exists; --overwrite replaces it", output.display());
    }
    Ok(file)
}

fn page_in(directory: &Path) -> PathBuf {
    directory.join("index.html")
}

impl Outputs {
    /// The document to `json`, and to the directory `report` as `name` beside the page of it. Earlier files there are
    /// an error unless they are to be replaced.
    pub fn new(json: Option<&Path>, report: Option<&Path>, name: &str, overwrite: bool) -> Result<Self> {
        report.map(create_directory).transpose()?;
        let paths = Self::paths(json, report, name);
        let page: Option<PathBuf> = report.map(page_in);
        let outputs = Self {
            json: paths.map(|path| Output::open(&path)).collect::<Result<_, _>>()?,
            page: page.map(|path| Output::open(&path)).transpose()?,
        };
        if let Some(earlier) = Self::earlier(json, report, name).filter(|_| !overwrite) {
            bail!("{} exists; --overwrite replaces it", earlier.display());
        }
        Ok(outputs)
    }

    /// Returns the first file that there is already of those that the document and its page would go to. A pipe or a
    /// device is none.
    pub fn earlier(json: Option<&Path>, report: Option<&Path>, name: &str) -> Option<PathBuf> {
        Self::paths(json, report, name).chain(report.map(page_in)).find(|path| path.is_file())
    }

    fn paths(json: Option<&Path>, report: Option<&Path>, name: &str) -> impl Iterator<Item = PathBuf> {
        json.map(Path::to_owned).into_iter().chain(report.map(|dir| dir.join(name)))
    }

    /// The first file that the document goes to.
    pub fn document(&self) -> &Path {
        self.json.first().map_or(Path::new("nowhere"), Output::path)
    }

    /// The page.
    pub fn page(&self) -> Option<&Path> {
        self.page.as_ref().map(Output::path)
    }

    /// Writes the document and the page of it.
    pub fn save<D: Serialize>(&self, document: &D, html: impl FnOnce(&D) -> String) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(document)?;
        self.json.iter().try_for_each(|output| output.replace(&text)).map_err(io::Error::other)?;
        match &self.page {
            Some(page) => page.replace(html(document).as_bytes()).map_err(io::Error::other),
            None => Ok(()),
        }
    }
}
