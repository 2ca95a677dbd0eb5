//! The footer of a trace file: which one counts, and what it may say.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memchr::memmem;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};

use super::schema::SCHEMA;
use crate::error::HeaderError;

/// The first and last bytes of Parquet files.
const MAGIC: &[u8; 4] = b"PAR1";
/// The length of the footer, and the magic word behind it.
const TAIL: u64 = 8;

/// The last whole footer of a file.
pub(super) struct Footer {
    pub(super) metadata: ParquetMetaData,
    /// Where it ends; what follows is torn.
    pub(super) end: u64,
    /// The file's length.
    pub(super) length: u64,
}

/// Why a file has no footer to read it by.
#[derive(Debug, thiserror::Error)]
pub(super) enum FooterError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error(transparent)]
    Header(#[from] HeaderError),
}

impl Footer {
    /// Finds the last whole footer, scanning back from the end.
    pub(super) fn find(file: &File) -> Result<Self, FooterError> {
        let length = file.metadata()?.len();
        let mut magic = [0; 4];
        if length < 4 || file.read_exact_at(&mut magic, 0).is_err() || magic != *MAGIC {
            return Err(HeaderError::NotParquet.into());
        }
        let mut end = length;
        while let Some(found) = magic_before(file, end)? {
            match read_at(file, found)? {
                Some(metadata) => return Ok(Self { metadata, end: found, length }),
                None => end = found - 1,
            }
        }
        Err(HeaderError::NoFooter.into())
    }

    /// Refuses what is no trace, and what names bytes that aren't there.
    pub(super) fn check(&self) -> Result<(), FooterError> {
        let Self { metadata, end, .. } = self;
        let (found, ours) = (metadata.file_metadata().schema_descr(), &*SCHEMA);
        for (place, column) in ours.columns().iter().enumerate() {
            let same = found.columns().get(place).is_some_and(|other| {
                (other.name(), other.physical_type(), other.max_def_level(), other.max_rep_level())
                    == (column.name(), column.physical_type(), column.max_def_level(), 0)
            });
            if !same {
                let name = column.name().to_owned();
                return Err(HeaderError::Column { number: place + 1, name }.into());
            }
        }
        for group in metadata.row_groups() {
            let inside = group.columns().iter().all(|chunk| is_inside(chunk, *end));
            if !inside || group.num_rows() < 0 || group.num_columns() != ours.num_columns() {
                return Err(
                    ParquetError::General("the footer names bytes that aren't there".to_owned()).into()
                );
            }
        }
        Ok(())
    }
}

/// Whether a chunk of a column lies between the first magic word of a file and `end`.
pub(crate) fn is_inside(chunk: &ColumnChunkMetaData, end: u64) -> bool {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let past = start.checked_add(chunk.compressed_size());
    start >= 4 && chunk.compressed_size() >= 0 && past.is_some_and(|past| past as u64 <= end)
}

/// Where the last magic word that ends at or before `end` ends.
fn magic_before(file: &File, mut end: u64) -> io::Result<Option<u64>> {
    const WINDOW: u64 = 1 << 20;
    let mut window = Vec::new();
    while end > 4 {
        let start = end.saturating_sub(WINDOW);
        window.resize((end - start) as usize, 0);
        file.read_exact_at(&mut window, start)?;
        if let Some(at) = memmem::rfind(&window, MAGIC) {
            return Ok(Some(start + at as u64 + 4));
        }
        end = if start == 0 { 0 } else { start + 3 };
    }
    Ok(None)
}

/// The footer that ends at `end`, if a whole one does.
fn read_at(file: &File, end: u64) -> io::Result<Option<ParquetMetaData>> {
    if end < 4 + TAIL {
        return Ok(None);
    }
    let mut length = [0; 4];
    file.read_exact_at(&mut length, end - TAIL)?;
    let length = u64::from(u32::from_le_bytes(length));
    let Some(start) = (end - TAIL).checked_sub(length).filter(|start| *start >= 4) else {
        return Ok(None);
    };
    let mut footer = vec![0; length as usize];
    file.read_exact_at(&mut footer, start)?;
    Ok(ParquetMetaDataReader::decode_metadata(&footer).ok())
}
