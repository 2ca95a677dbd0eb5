//! The files of a sweep: one a cell, written atomically.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trimtab_host::file::{Output, OutputError, create_directory};
use xxhash_rust::xxh3::xxh3_64;

use super::cell::{CELL_SCHEMA, Cell, CellResult, VERSION};

/// A file begins with these bytes, 16 digits of its content's hash, and [`MIDDLE`].
const BEGIN: &str = "{\"checksum\":\"";
const MIDDLE: &str = "\",\"content\":";
const END: &str = "}\n";
const DIGITS: usize = 16;

/// The directory of a sweep.
#[derive(Debug, Clone)]
pub struct Store {
    cells: PathBuf,
}

/// The content of a cell's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellFile {
    schema: String,
    version: String,
    key: String,
    cell: Cell,
    /// The results.
    pub result: CellResult,
}

/// A file of a cell, as far as it is worth something.
#[derive(Debug, Clone, PartialEq)]
pub enum Stored {
    /// There is none.
    Missing,
    /// There is one that was not written by this program, or was changed since: it counts as none.
    Damaged,
    /// The cell was computed.
    Done(Box<CellResult>),
}

impl CellFile {
    /// The bytes of the file with the results of `cell`: the same for the same results.
    pub fn encode(cell: &Cell, result: CellResult) -> Vec<u8> {
        let file = Self {
            schema: CELL_SCHEMA.to_owned(),
            version: VERSION.to_owned(),
            key: cell.key(),
            cell: cell.clone(),
            result,
        };
        let content = serde_json::to_string(&file).expect("a cell is plain data");
        format!("{BEGIN}{:016x}{MIDDLE}{content}{END}", xxh3_64(content.as_bytes())).into_bytes()
    }

    /// The results in a file of the cell with this key; `None` if the file is damaged or another's.
    pub fn decode(key: &str, bytes: &[u8]) -> Option<CellResult> {
        let text = std::str::from_utf8(bytes).ok()?.strip_prefix(BEGIN)?;
        let (checksum, rest) = text.split_at_checked(DIGITS)?;
        let content = rest.strip_prefix(MIDDLE)?.strip_suffix(END)?;
        if checksum != format!("{:016x}", xxh3_64(content.as_bytes())) {
            return None;
        }
        let file: Self = serde_json::from_str(content).ok()?;
        (file.schema == CELL_SCHEMA && file.version == VERSION && file.key == key).then_some(file.result)
    }
}

impl Store {
    /// Opens the directory of a sweep, and creates it if there is none.
    ///
    /// # Errors
    /// If no file can be written there.
    pub fn open(directory: &Path) -> Result<Self, OutputError> {
        let store = Self { cells: directory.join("cells") };
        create_directory(directory)?;
        create_directory(&store.cells)?;
        Output::open(&store.cells.join("probe.json"))?;
        Ok(store)
    }

    fn path(&self, key: &str) -> PathBuf {
        self.cells.join(format!("{key}.json"))
    }

    /// Reads the file of a cell.
    ///
    /// # Errors
    /// If there is one that can't be read.
    pub fn read(&self, key: &str) -> io::Result<Stored> {
        match fs::read(self.path(key)) {
            Ok(bytes) => {
                Ok(CellFile::decode(key, &bytes).map_or(Stored::Damaged, |it| Stored::Done(Box::new(it))))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Stored::Missing),
            Err(error) => Err(error),
        }
    }

    /// Writes the file of a cell, as [`CellFile::encode`] made it.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn write(&self, key: &str, bytes: &[u8]) -> Result<(), OutputError> {
        Output::open(&self.path(key))?.replace(bytes)
    }
}
